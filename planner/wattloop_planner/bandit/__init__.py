"""Choosing the batch size across recurrences: one interface, a file a policy, posterior apart from choice."""
