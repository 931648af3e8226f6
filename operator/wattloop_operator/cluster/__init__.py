"""The one place that talks to the API server: reading, writing, events, election, tokens."""
