"""Options, help and checks of the operator's subcommands; `commands` runs them.

The modules import nothing that takes long to import, so that `--help` and usage errors appear at once.
"""
