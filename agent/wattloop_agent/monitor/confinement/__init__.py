"""Drops rights that the monitor does not need before it serves callers, so that a compromised one lacks them."""
