"""The agent's subcommands of ``wattloop``."""
