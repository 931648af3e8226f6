"""`wattloop plot`: pictures of a job's costs and of its energy/time trade-off."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.errors import CannotError
from wattloop_operator.commands.job_source import add_source_arguments, job_history
from wattloop_operator.pictures.pictures import write_pictures


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output", metavar="DIR", default=".", help="the folder for cost.png and tradeoff.png (default: this one)"
    )


def _run(arguments: argparse.Namespace) -> int:
    history = job_history(arguments)
    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotError(f"{folder}: cannot be the folder of the pictures: {error.strerror}; name another") from error
    for path in write_pictures(folder, history):
        sys.stderr.write(f"{path}\n")
    return 0


COMMAND = Command(
    summary="pictures of a job's costs and of its energy/time trade-off",
    description="Draws cost.png (the cost of each recurrence by batch size, and the running saving) and tradeoff.png "
    "(energy against time of every batch size and power limit seen, with the Pareto front).",
    example="  wattloop plot digits --database sqlite:///wattloop-output/digits/wattloop.db --output pictures\n"
    "  wattloop plot digits --context production --namespace research",
    configure=_configure,
    run=_run,
)
