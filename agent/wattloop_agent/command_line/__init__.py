"""The options, the help and the checks of the subcommands; what carries them out is in `commands`."""
