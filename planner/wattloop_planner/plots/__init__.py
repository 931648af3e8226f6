"""Pictures of what a policy believes and of what its learning costs."""
