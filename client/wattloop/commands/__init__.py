"""The ``wattloop`` command: a frame to which every package contributes its subcommands."""
