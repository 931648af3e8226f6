"""Options of `wattloop history`, and the options by which `wattloop plot` finds a job too."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
from wattloop.errors import UsageError


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add JOB and the options that locate it and set what it is compared with."""
    parser.add_argument(
        "job", metavar="JOB", help="name of the RecurringTrainingJob, or an output folder of wattloop run"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--database",
        metavar="DATABASE",
        help="read this database: a file, a folder that holds wattloop.db, or postgresql://USER:PASSWORD@HOST/NAME",
    )
    source.add_argument(
        "--context", metavar="NAME", help="read the cluster of this kubeconfig context (default: the current one)"
    )
    parser.add_argument("--namespace", metavar="NAME", help="namespace of the job (default: the context's)")
    parser.add_argument(
        "--uid", help="with --database: UID of the job, if several jobs had the name (default: the latest)"
    )
    parser.add_argument("--eta", type=float, help="weight of energy in the cost, 0 to 1 (default: the job's own)")
    parser.add_argument(
        "--default-batch-size", type=int, metavar="B", help="batch size to compare with (default: the job's own)"
    )


def check_source(arguments: argparse.Namespace) -> None:
    """Check the values of these options, and replace an output folder by the database in it.

    Raises:
        UsageError: A value is out of range, or an option lacks the option that it requires.
    """
    if arguments.eta is not None and not 0 <= arguments.eta <= 1:
        raise UsageError(f"--eta: found {arguments.eta}, expected a weight of energy against time from 0 to 1")
    if arguments.default_batch_size is not None and arguments.default_batch_size < 1:
        raise UsageError(f"--default-batch-size: found {arguments.default_batch_size}, expected at least 1")
    has_database = os.path.lexists(Path(arguments.job) / "wattloop.db")
    if arguments.database is None and arguments.context is None and has_database:
        arguments.database, arguments.job = arguments.job, None
    if arguments.uid is not None and arguments.database is None:
        raise UsageError("--uid selects among the jobs of a database; add --database DATABASE")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="table (default), csv (as recurrences.csv) or json (a list of objects with the columns of the CSV)",
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="output file (default: -, stdout)")


COMMAND = Command(
    description="Shows the cost of each attempt of a RecurringTrainingJob, also relative to the default configuration. "
    "A cluster keeps only the latest recurrences as objects; the operator's database keeps all.",
    example="  wattloop history wattloop-output/digits\n"
    "  wattloop history digits --database sqlite:///shared.db\n"
    "  wattloop history digits --context production --namespace research --format csv --output digits.csv",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.history:run"),
    check=check_source,
)
