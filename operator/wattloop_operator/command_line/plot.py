"""Options of `wattloop plot`."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.command_line.history import add_source_arguments, check_source


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output", metavar="DIR", default=".", help="folder for cost.png and tradeoff.png (default: the current one)"
    )


COMMAND = Command(
    description="Plots cost.png (the cost of each recurrence by batch size, and the cumulative saving) and "
    "tradeoff.png (energy against time of every batch size and power limit in use so far, with the Pareto front).",
    example="  wattloop plot wattloop-output/digits --output plots\n"
    "  wattloop plot digits --context production --namespace research",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.plot:run"),
    check=check_source,
)
