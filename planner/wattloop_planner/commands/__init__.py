"""Executes the planner's subcommands."""
