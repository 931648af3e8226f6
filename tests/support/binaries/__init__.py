"""The Kubernetes programs that tests run, built from their Go modules."""
