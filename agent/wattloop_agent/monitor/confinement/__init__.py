"""Drops rights that the monitor does not need, before it serves callers."""
