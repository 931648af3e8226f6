"""The interface between the ``wattloop`` command and the packages that contribute subcommands.

A package registers its subcommands in the entry-point group ``wattloop.commands``: ``simulate =
"wattloop_research.command_line.simulate:COMMAND"``. The module has all of a subcommand: its options, its
help, the checks of its arguments and what it does. It imports no slow module, so that ``--help`` and usage
errors are fast: the function that runs the subcommand imports what it needs, so that a missing extra affects
only that subcommand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from wattloop.installation import how_to_install

GROUP = "wattloop.commands"
EXTRAS = {"wattloop_operator": "operator", "wattloop_agent": "agent", "wattloop_research": "research"}


def _accept(_: argparse.Namespace) -> None:
    """Accept every combination of arguments."""


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        description: Description for ``--help``.
        example: One or more command lines, shown at the end of ``--help``.
        configure: Adds the subcommand's arguments to its parser.
        run: Runs the subcommand and returns the exit code: 0 on success, 1 on failure. It raises
            `wattloop.errors.UsageError` or `InputError` (exit 2) and `OperationError` (exit 1) with a
            complete message. A signal ends it at once with 130, except inside
            `wattloop.interruption.deferred`.
        check: Called before ``run`` with the same arguments. It raises `wattloop.errors.UsageError`
            (exit 2) for values that the parser cannot reject, such as options that exclude each other.
    """

    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = _accept


def subcommand_parser(title: str, command: Command) -> argparse.ArgumentParser:
    """The parser of a subcommand.

    Args:
        title: How it is called, such as `wattloop history`.
        command: The subcommand.
    """
    parser = argparse.ArgumentParser(
        prog=title,
        description=command.description,
        epilog=f"example:\n{command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def missing_module(module: str, error: ModuleNotFoundError) -> str:
    """The message for a missing module: its name, and how to install the extra that has it.

    Args:
        module: The module of the command.
        error: The error of its import.
    """
    extra = EXTRAS.get(module.partition(".")[0], "operator")
    return f"needs the module {error.name}, which is not installed; {how_to_install(extra)}"
