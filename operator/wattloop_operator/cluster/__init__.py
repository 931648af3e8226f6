"""The Kubernetes API server: connection, cache, authorization, election and back end."""
