"""The Kubernetes API server: connection, cache, authorization, election, and the back end of the driver."""
