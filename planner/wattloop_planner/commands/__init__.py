"""The subcommands that the planner contributes."""
