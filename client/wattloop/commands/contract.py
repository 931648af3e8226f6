"""What a package contributes to the ``wattloop`` command.

A package names its subcommands in the entry-point group ``wattloop.commands``: ``simulate =
"wattloop_planner.commands.simulate:COMMAND"``. The frame imports a module only when its subcommand is used, so that a
missing extra concerns that subcommand alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        summary: One line for the list of subcommands.
        description: What it does, for its own ``--help``.
        example: One or more command lines, shown at the end of its ``--help``.
        configure: Adds the subcommand's arguments to its parser.
        run: Carries it out and returns the exit code: 0 done, 1 could not. It raises `wattloop.errors.UsageError` or
            `InputError` (exit 2) and `CannotError` (exit 1) with a text that is complete by itself.
    """

    summary: str
    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
