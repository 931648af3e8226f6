"""The agent's metrics, energy events and HTTP server."""
