"""What is learned from attempts: observations, costs, and the next decision."""
