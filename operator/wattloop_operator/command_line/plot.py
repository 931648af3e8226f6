"""`wattloop plot`: plots a job's costs and its energy/time trade-off."""

import argparse
import sys
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.errors import OperationError
from wattloop_operator.command_line.history import add_source_arguments, check_source, job_history


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output", metavar="DIR", default=".", help="folder for cost.png and tradeoff.png (default: the current one)"
    )


def _run(arguments: argparse.Namespace) -> int:
    from wattloop_operator.history.cost_history import UNKNOWN_WEIGHT
    from wattloop_operator.plots import write_plots

    with job_history(arguments) as history:
        if history.eta is None:
            sys.stderr.write(f"{UNKNOWN_WEIGHT}\n")
        folder = Path(arguments.output)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationError(
                f"{folder}: cannot create the output folder: {error.strerror}; choose another --output"
            ) from error
        for path in write_plots(folder, history):
            sys.stderr.write(f"{path}\n")
    return 0


COMMAND = Command(
    description="Plots cost.png (the cost of each recurrence by batch size, and the cumulative saving) and "
    "tradeoff.png (energy against time of every batch size and power limit in use so far, with the Pareto front).",
    example="  wattloop plot wattloop-output/digits --output plots\n"
    "  wattloop plot digits --context production --namespace research",
    configure=_configure,
    run=_run,
    check=check_source,
)
