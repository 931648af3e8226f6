"""`wattloop history`: the recurrences of a job, from a database or a cluster."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from wattloop.commands.contract import Command
from wattloop.files.whole import written_whole
from wattloop_operator.commands.job_source import add_source_arguments, job_history
from wattloop_operator.pictures.recurrence_costs import saving_sentence
from wattloop_operator.pictures.row_table import table_of
from wattloop_operator.pictures.rows import rows_of, write_csv, write_json

# Where no terminal says how wide it is.
COLUMNS_IN_A_FILE = 160


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="table (default), csv (the form of recurrences.csv) or json (a list of the same)",
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="write to this file (default: -, stdout)")


def _run(arguments: argparse.Namespace) -> int:
    history = job_history(arguments)
    rows = rows_of(history)
    with written_whole(arguments.output) as stream:
        if arguments.format == "csv":
            write_csv(stream, rows)
        elif arguments.format == "json":
            write_json(stream, rows)
        else:
            width = None if stream.isatty() else COLUMNS_IN_A_FILE
            Console(file=stream, width=width).print(table_of(rows, history.title))
    sys.stderr.write(saving_sentence(rows) + "\n")
    return 0


COMMAND = Command(
    summary="the recurrences of a job, from a database or a cluster",
    description="Shows what each attempt of a RecurringTrainingJob cost, and against the default configuration. A "
    "cluster keeps only the latest recurrences as objects; the operator's database has all of them.",
    example="  wattloop history digits --database sqlite:///wattloop-output/digits/wattloop.db\n"
    "  wattloop history digits --context production --namespace research --format csv --output digits.csv",
    configure=_configure,
    run=_run,
)
