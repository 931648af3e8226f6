"""Measured and random pipelines, and reference solvers."""
