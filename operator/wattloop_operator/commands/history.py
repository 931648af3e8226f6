"""`wattloop history`: the recurrences of a job, from a database or a cluster."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from wattloop.files.atomic_write import open_atomic
from wattloop_operator.commands.job_source import job_history
from wattloop_operator.history.rows import rows_of, write_csv, write_json
from wattloop_operator.history.savings import saving_sentence
from wattloop_operator.history.table import table_of

# Where no terminal says how wide it is.
COLUMNS_IN_A_FILE = 160


def run(arguments: argparse.Namespace) -> int:
    """Carry out ``wattloop history``."""
    history = job_history(arguments)
    rows = rows_of(history)
    with open_atomic(arguments.output) as stream:
        if arguments.format == "csv":
            write_csv(stream, rows)
        elif arguments.format == "json":
            write_json(stream, rows)
        else:
            width = None if stream.isatty() else COLUMNS_IN_A_FILE
            Console(file=stream, width=width).print(table_of(rows, history.title))
    sys.stderr.write(saving_sentence(rows) + "\n")
    return 0
