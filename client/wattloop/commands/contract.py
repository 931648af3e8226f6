"""The interface between the ``wattloop`` command and the packages that contribute subcommands.

A package registers its subcommands in the entry-point group ``wattloop.commands``. The module of one imports nothing
slow, so that ``--help`` and usage errors are fast: the function that runs it imports what it needs.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from wattloop.installation import how_to_install

GROUP = "wattloop.commands"
EXTRAS = {"wattloop_operator": "operator", "wattloop_agent": "agent", "wattloop_research": "research"}


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
    check: Callable[[argparse.Namespace], None] = lambda _: None


def subcommand_parser(title: str, command: Command) -> argparse.ArgumentParser:
    """The parser of a subcommand."""
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
    """The message for a missing module: its name, and how to install the extra that has it."""
    extra = EXTRAS.get(module.partition(".")[0], "operator")
    return f"needs the module {error.name}, which is not installed; {how_to_install(extra)}"
