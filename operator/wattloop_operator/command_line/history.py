"""`wattloop history`: the recurrences of a job, from a database or a cluster."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.command_line.job_source import add_source_arguments, check_source


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="table (default), csv (the form of recurrences.csv) or json (a list of the same)",
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="write to this file (default: -, stdout)")


COMMAND = Command(
    summary="the recurrences of a job, from a database or a cluster",
    description="Shows what each attempt of a RecurringTrainingJob cost, and against the default configuration. A "
    "cluster keeps only the latest recurrences as objects; the operator's database has all of them.",
    example="  wattloop history digits --database sqlite:///wattloop-output/digits/wattloop.db\n"
    "  wattloop history digits --context production --namespace research --format csv --output digits.csv",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.history:run"),
    check=check_source,
)
