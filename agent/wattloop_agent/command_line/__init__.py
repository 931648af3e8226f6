"""Options, help and checks of the agent's subcommands; `commands` runs them."""
