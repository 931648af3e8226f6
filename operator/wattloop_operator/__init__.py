"""The operator: API models, decisions, store, cluster access, reporting API and the local mode."""
