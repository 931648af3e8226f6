"""What a package contributes to the ``wattloop`` command.

A package names its subcommands in the entry-point group ``wattloop.commands``: ``simulate =
"wattloop_planner.command_line.simulate:COMMAND"``. Such a module declares a subcommand: its options, its help and the
checks of what is given. It imports nothing that takes long to import, so that ``--help`` and a usage error are shown at
once. The function that carries the subcommand out is named by a `Deferred` and imported when it is called, so that a
missing extra concerns that subcommand alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from wattloop.errors import OperationError

EXTRAS = {"wattloop_operator": "operator", "wattloop_agent": "agent", "wattloop_planner": "planner"}


def _accept(_: argparse.Namespace) -> None:
    """Every combination of the arguments is valid."""


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        summary: One line for the list of subcommands.
        description: What it does, for its own ``--help``.
        example: One or more command lines, shown at the end of its ``--help``.
        configure: Adds the subcommand's arguments to its parser.
        run: Carries it out and returns the exit code: 0 done, 1 failed. It raises `wattloop.errors.UsageError` or
            `InputError` (exit 2) and `OperationError` (exit 1) with a complete message. A signal ends it at once with
            130, except inside of `wattloop.interruption.deferred`.
        check: Called before ``run``, with the same arguments: raises `wattloop.errors.UsageError` (exit 2) for values
            that the parser cannot reject by itself, such as two options that exclude each other.
    """

    summary: str
    description: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = _accept


@dataclass(frozen=True)
class Deferred:
    """A command's ``run`` that imports its function when it is called.

    Attributes:
        function: The function's module and name, as in ``wattloop_planner.commands.plan:run``.
    """

    function: str

    def load(self) -> Callable[[argparse.Namespace], int]:
        """The function.

        Raises:
            OperationError: A module that it needs is not installed.
        """
        module, _, name = self.function.partition(":")
        try:
            found: Callable[[argparse.Namespace], int] = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise OperationError(missing_module(module, error)) from error
        return found

    def __call__(self, arguments: argparse.Namespace) -> int:
        """Carry the subcommand out."""
        return self.load()(arguments)


def missing_module(module: str, error: ModuleNotFoundError) -> str:
    """What is missing for a command, and what to install.

    Args:
        module: The module that is imported.
        error: What its import raised.
    """
    extra = EXTRAS.get(module.partition(".")[0], "operator")
    return f"needs the module {error.name}, which is not installed; install it with: pip install 'wattloop[{extra}]'"
