"""Scripts that nobody wrote for these tests, as jobs of the local mode and of a node."""
