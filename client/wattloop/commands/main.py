"""The ``wattloop`` command: finds the subcommand, runs it, and converts errors to exit codes.

The parent process may have closed the standard streams or given them a limited encoding.
"""

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version

from wattloop import interruption
from wattloop.commands.contract import GROUP, Command, missing_module, subcommand_parser
from wattloop.commands.output import printable_streams
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.printable import printable

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = interruption.EXIT_INTERRUPTED
# Errors of a failed write, to standard output among others, with the next step.
WRITE_ERRORS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS), "free space and run it again"),
    errno.EBADF: "standard output was closed at the start",
}
# What each subcommand does, for the first page, which imports no package.
EVERY_DAY = {
    "run": "run a RecurringTrainingJob on this machine, learning with each recurrence",
    "validate": "check manifests against the API's schema and rules, without a cluster",
    "logs": "show what Wattloop reads from a training's log, and what it passes over and why",
    "convert": "make a RecurringTrainingJob's manifest of a CronJob's, RayCronJob's or Volcano CronJob's",
    "check": "run one small recurrence in a cluster, to check that Wattloop works there",
    "history": "show the recurrences of a job, from a database or a cluster",
    "ui": "show the jobs of a database or a cluster, their decisions and costs in a browser",
    "plot": "plot a job's costs and its energy/time trade-off",
    "monitor": "show energy and power of this machine's GPUs",
}
LABORATORY = {
    "simulate": "simulate recurrences on measured traces",
    "replay": "make the decisions of a run again and compare, or those of a policy on a given history",
    "plan": "compute GPU frequency plans of a training pipeline",
    "pipeline": "analyze, compare and emulate pipelines under frequency plans",
    "power": "select a power limit from a measured profile",
    "sweep": "run a job at every batch size and power limit of a grid, to see the energy/time trade-off",
}
# Started by containers and service managers; the first page and the completion of a shell leave them out.
SERVICES = {
    "operator": "start the Kubernetes operator in the foreground",
    "agent": "start the node agent in the foreground",
    "ui-server": "serve the jobs of a cluster to browsers, each viewer seeing what he may list",
}


def main(arguments: Sequence[str] | None = None, program: str = "wattloop") -> int:
    """Run ``wattloop`` with these arguments (default: the process's own) and return its exit code.

    Messages name the program, which is called ``kubectl wattloop`` as a plugin of kubectl. SIGINT, SIGTERM and
    SIGHUP end it with 130; see `wattloop.interruption`.
    """
    with interruption.handled(program):
        open_closed_streams()
        write_every_character()
        use_one_thread()
        with printable_streams():
            return _main(list(sys.argv[1:] if arguments is None else arguments), program)


def _main(arguments: list[str], program: str) -> int:
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not arguments or arguments[0].startswith("-"):
        return _exit_code(program, lambda: _overview(arguments, found, program))
    name, *rest = arguments
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        return _print_error(f"{program}: unknown subcommand {name!r}; the subcommands are: {known}", EXIT_USAGE)
    title = f"{program} {name}"
    with interruption.handled(title):
        return _exit_code(title, lambda: _subcommand(title, found[name], rest))


def _overview(arguments: list[str], found: dict[str, EntryPoint], program: str) -> int:
    every_day, laboratory = (
        "\n".join(f"  {name:10} {summary}" for name, summary in group.items() if name in found)
        for group in (EVERY_DAY, LABORATORY)
    )
    parser = argparse.ArgumentParser(
        prog=program,
        description="Lowers the energy and time of recurring training jobs.",
        epilog=f"every day:\n{every_day}\n\nlaboratory:\n{laboratory}\n\nexample:\n"
        "  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1\n"
        "  source <(wattloop completion bash)    # also zsh and fish",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"{program} SUBCOMMAND [OPTIONS]",
    )
    parser.add_argument("--version", action="version", version=f"wattloop {version('wattloop')}")
    parser.parse_args(arguments)
    parser.print_help()
    return 0 if arguments else EXIT_USAGE


def _subcommand(title: str, entry: EntryPoint, arguments: list[str]) -> int:
    try:
        command = entry.load()
        if not isinstance(command, Command):
            raise TypeError(f"entry point {entry.value} of {GROUP} is not a wattloop.commands.contract.Command")
        options = subcommand_parser(title, command).parse_args(arguments)
        command.check(options)
        return command.run(options)
    except ModuleNotFoundError as error:
        raise OperationError(missing_module(entry.module, error)) from error


def _exit_code(title: str, call: Callable[[], int]) -> int:
    code = _call(title, call)
    if interruption.accept_request():
        # The request came after the last safe point.
        return _print_error(f"{title}: interrupted", EXIT_INTERRUPTED)
    return EXIT_INTERRUPTED if interruption.requested() else code


def _call(title: str, call: Callable[[], int]) -> int:
    try:
        try:
            code = call()
        finally:
            # Also on SystemExit, which --help raises.
            sys.stdout.flush()
    except (UsageError, InputError) as error:
        return _print_error(f"{title}: {error}", EXIT_USAGE)
    except OperationError as error:
        return _print_error(f"{title}: {error}", EXIT_FAILURE)
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return _print_error(f"{title}: interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        where = f" {error.filename}" if error.filename else ""
        _silence_stdout()
        return _print_error(
            f"{title}: cannot write{where}: {error.strerror}; {WRITE_ERRORS[error.errno]}", EXIT_FAILURE
        )
    return code


def _silence_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter's last flush prints no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _print_error(text: str, code: int) -> int:
    # A file's names and texts may stand in the message.
    lines = [printable(line, len(line)) for line in text.split("\n")]
    sys.stderr.write("\n".join(lines) + "\n")
    return code


# The matrices of a decision are small: with a thread for each processor OpenBLAS takes twice the processor time.
VARIABLE = "OPENBLAS_NUM_THREADS"
_GIVEN = os.environ.get(VARIABLE)


def use_one_thread() -> None:
    """Has an effect until NumPy is imported, and none if the user has set the variable."""
    os.environ.setdefault(VARIABLE, "1")


def users_environment() -> dict[str, str]:
    """The environment that the user gave, for a training, which may use all processors.

    Example:
        >>> use_one_thread()
        >>> users_environment().get(VARIABLE) == _GIVEN
        True
    """
    environment = dict(os.environ)
    if _GIVEN is None:
        environment.pop(VARIABLE, None)
    return environment


STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = range(3)


def open_closed_streams() -> None:
    """Open closed descriptors 0 to 2, which the next opened file, such as a database, would otherwise get.

    Input is empty, writes to standard output fail, because the output was requested, and standard error
    is discarded.
    """
    # In this order, because an opened file gets the lowest free number.
    for number in (STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == STANDARD_ERROR else os.O_RDONLY)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(STANDARD_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(STANDARD_OUTPUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(STANDARD_ERROR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def write_every_character() -> None:
    r"""Let standard output escape characters outside its encoding, as ``\xf6``, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
