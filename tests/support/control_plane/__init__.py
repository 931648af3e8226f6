"""A real Kubernetes control plane for tests, and what stands in for the nodes that it does not have."""
