"""Fuzz targets for what a stranger can send: requests to the agent's socket, reports, manifests; docs/testing.md."""
