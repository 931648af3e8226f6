"""The operator's subcommands of the `wattloop` command; `command_line` has their options."""
