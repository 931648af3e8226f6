"""The unprivileged part: knows callers, reads energy, asks the setter on their behalf."""
