"""A training on a real node, and what tests observe of it."""
