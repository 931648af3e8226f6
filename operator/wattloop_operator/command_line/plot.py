"""`wattloop plot`: pictures of a job's costs and of its energy/time trade-off."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.command_line.job_source import add_source_arguments, check_source


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output", metavar="DIR", default=".", help="the folder for cost.png and tradeoff.png (default: this one)"
    )


COMMAND = Command(
    summary="pictures of a job's costs and of its energy/time trade-off",
    description="Draws cost.png (the cost of each recurrence by batch size, and the running saving) and tradeoff.png "
    "(energy against time of every batch size and power limit seen, with the Pareto front).",
    example="  wattloop plot digits --database sqlite:///wattloop-output/digits/wattloop.db --output pictures\n"
    "  wattloop plot digits --context production --namespace research",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.plot:run"),
    check=check_source,
)
