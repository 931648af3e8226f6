"""The agent's subcommands of ``wattloop``, one module each; ``--help`` imports only the standard library."""
