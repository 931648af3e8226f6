"""What is learned from attempts: observations, costs, savings, and the next decision."""
