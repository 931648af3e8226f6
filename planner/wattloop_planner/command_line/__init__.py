"""Options, help and validation of the planner's subcommands; `commands` executes them."""
