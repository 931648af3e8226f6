"""The unprivileged part: knows callers, reads energy, asks the power controller on their behalf."""
