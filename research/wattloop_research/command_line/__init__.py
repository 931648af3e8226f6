"""The laboratory's subcommands: one module a command, with its options, their checks and what it does.

A function imports what takes long to import, so that `--help` and usage errors appear at once.
"""
