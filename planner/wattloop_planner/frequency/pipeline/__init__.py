"""Describes a pipeline: schedule, graph of operations, measured options, and the cost of a plan."""
