"""`wattloop history`: shows the recurrences of a job, from a database or a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from rich.console import Console

from wattloop.files.atomic_write import open_atomic
from wattloop_operator.history.cluster_history import cluster_context, cluster_history
from wattloop_operator.history.cost_history import summary
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.history_table import table_of
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of, write_csv, write_json
from wattloop_operator.history.stored_history import JobSelector, stored_history
from wattloop_operator.store import open_store

# Width of the table if the output is not a terminal.
FILE_COLUMNS = 160


def run(arguments: argparse.Namespace) -> int:
    """Run ``wattloop history``."""
    history = job_history(arguments)
    rows = rows_of(history)
    with open_atomic(arguments.output) as stream:
        if arguments.format == "csv":
            write_csv(stream, rows)
        elif arguments.format == "json":
            write_json(stream, rows)
        else:
            width = None if stream.isatty() else FILE_COLUMNS
            console = Console(file=stream, width=width)
            console.print(table_of(rows, history.title))
            if note := energy_note([row.energy_origin for row in rows]):
                console.print(note, markup=False, highlight=False)
    sys.stderr.write(summary(history) + "\n")
    return 0


def job_history(arguments: argparse.Namespace) -> JobHistory:
    """Read the history of the job that the arguments of `wattloop history` or `wattloop plot` name.

    Raises:
        UsageError: There is no such job.
        InputError: An object cannot be parsed.
        OperationError: The database or the cluster cannot be read.
    """
    if arguments.database is None:
        context = cluster_context(arguments.context)
        with context.client:
            history = cluster_history(context, arguments.job, arguments.namespace)
    else:
        with open_store(arguments.database, create=False) as store:
            history = stored_history(store, JobSelector(arguments.job, arguments.namespace, arguments.uid))
    overrides = {"eta": arguments.eta, "default_batch_size": arguments.default_batch_size}
    history = replace(history, **{name: value for name, value in overrides.items() if value is not None})
    if history.default_batch_size is None:
        sys.stderr.write(
            f"{history.title}: this database has no RecurringTrainingJob, so costs are at eta {history.eta:g} and "
            "without comparison; give --eta and --default-batch-size\n"
        )
    return history
