"""The operator's HTTP servers, their limits, and their certificates."""
