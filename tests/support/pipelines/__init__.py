"""Pipelines to plan: measured, random, and the solvers that the planner is compared with."""
