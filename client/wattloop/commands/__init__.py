"""The ``wattloop`` command, to which every package contributes subcommands."""
