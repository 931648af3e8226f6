"""The frame of the ``wattloop`` command: finds the subcommand, runs it, turns errors into exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version

from wattloop import interruption
from wattloop.commands.contract import Command, missing_module
from wattloop.commands.streams import open_closed_streams, write_every_character
from wattloop.errors import InputError, OperationError, UsageError

GROUP = "wattloop.commands"
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = interruption.EXIT_INTERRUPTED
# What the system says where a file, standard output among them, cannot be written any further.
UNWRITABLE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS), "free space and run it again"),
    errno.EBADF: "standard output was closed before it began",
}
# Shown in the list of subcommands without importing the packages behind them.
SUMMARIES = {
    "run": "run a RecurringTrainingJob on this machine, learning with each recurrence",
    "history": "show the recurrences of a job, from a database or a cluster",
    "plot": "plot a job's costs and its energy/time trade-off",
    "validate": "check manifests against the API's schema and rules, without a cluster",
    "check": "run one small recurrence in a cluster, to check that Wattloop works there",
    "operator": "start the Kubernetes operator in the foreground",
    "agent": "start the node agent in the foreground",
    "monitor": "energy and power of this machine's GPUs",
    "simulate": "recurrences on measured traces",
    "replay": "what a policy decides on a given history",
    "plan": "GPU frequency plans of a training pipeline",
    "power": "which power limit a measured profile calls for",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``wattloop`` with these arguments (default: the process's own) and return its exit code.

    SIGINT, SIGTERM and SIGHUP end it with 130, as `wattloop.interruption` says.
    """
    with interruption.handled():
        open_closed_streams()
        write_every_character()
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(words: list[str]) -> int:
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not words or words[0].startswith("-"):
        return _carried_out("wattloop", lambda: _overview(words, found))
    name, *rest = words
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        return _say(f"wattloop: there is no subcommand {name!r}; there are: {known}", EXIT_USAGE)
    return _run(name, found[name], rest)


def _overview(words: list[str], found: dict[str, EntryPoint]) -> int:
    lines = "\n".join(f"  {name:10} {SUMMARIES.get(name, '')}" for name in sorted(found, key=_order))
    parser = argparse.ArgumentParser(
        prog="wattloop",
        description="Makes a training job that runs again and again cost less each time it runs.",
        epilog=f"subcommands:\n{lines}\n\nexample:\n  wattloop run examples/digits/job.yaml --recurrences 24",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="wattloop SUBCOMMAND [OPTIONS]",
    )
    parser.add_argument("--version", action="version", version=f"wattloop {version('wattloop')}")
    parser.parse_args(words)
    parser.print_help()
    return 0 if words else EXIT_USAGE


def _order(name: str) -> tuple[int, str]:
    names = list(SUMMARIES)
    return (names.index(name) if name in names else len(names), name)


def _run(name: str, entry: EntryPoint, words: list[str]) -> int:
    interruption.set_title(f"wattloop {name}")
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        return _say(f"wattloop {name}: {missing_module(entry.module, error)}", EXIT_FAILURE)
    if not isinstance(command, Command):
        raise TypeError(f"entry point {entry.value} of {GROUP} is no wattloop.commands.contract.Command")
    parser = argparse.ArgumentParser(
        prog=f"wattloop {name}",
        description=command.description,
        epilog=f"example:\n{command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)

    def run() -> int:
        arguments = parser.parse_args(words)
        command.check(arguments)
        return command.run(arguments)

    return _carried_out(parser.prog, run)


def _carried_out(title: str, call: Callable[[], int]) -> int:
    code = _code_of(title, call)
    if interruption.accept_request():
        # The request came after the last safe point: the work was ended, and so were its words said.
        return _say(f"{title}: interrupted", EXIT_INTERRUPTED)
    return EXIT_INTERRUPTED if interruption.requested() else code


def _code_of(title: str, call: Callable[[], int]) -> int:
    try:
        try:
            code = call()
        finally:
            # Also where it ends by SystemExit, as --help does.
            sys.stdout.flush()
    except (UsageError, InputError) as error:
        return _say(f"{title}: {error}", EXIT_USAGE)
    except OperationError as error:
        return _say(f"{title}: {error}", EXIT_FAILURE)
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return _say(f"{title}: interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        where = f" {error.filename}" if error.filename else ""
        _silence_stdout()
        return _say(f"{title}: cannot write{where}: {error.strerror}; {UNWRITABLE[error.errno]}", EXIT_FAILURE)
    return code


def _silence_stdout() -> None:
    """Point stdout elsewhere, so that the interpreter's last flush of what could not be written is silent."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _say(text: str, code: int) -> int:
    sys.stderr.write(text + "\n")
    return code
