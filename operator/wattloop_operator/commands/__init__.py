"""The operator's subcommands of the `wattloop` command."""
