"""`wattloop history`: shows the recurrences of a job, from a database or a cluster.

`wattloop plot` finds a job by the same options.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattloop.commands.contract import Command
from wattloop.commands.output import console
from wattloop.errors import OperationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

    from wattloop_operator.domain.tariff import Tariffs
    from wattloop_operator.history.job_history import JobHistory
    from wattloop_operator.history.lines import Line
    from wattloop_operator.store import Store

# Width of the table if the output is not a terminal.
FILE_COLUMNS = 160


def add_source_arguments(parser: argparse.ArgumentParser, *, optional_job: bool = False) -> None:
    """Add JOB and the options that locate it."""
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="?" if optional_job else None,
        help="name of the RecurringTrainingJob, or an output folder of wattloop run",
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
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig of the cluster (default: $KUBECONFIG, else ~/.kube/config)"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace of the job (default: the context's)")
    parser.add_argument(
        "--uid", help="with --database: UID of the job, if several jobs had the name (default: the latest)"
    )


def add_tariff_option(parser: argparse.ArgumentParser) -> None:
    """Add --tariff to a command that reads jobs."""
    parser.add_argument(
        "--tariff",
        type=Path,
        metavar="FILE",
        help="price and carbon intensity of electricity by namespace, as the chart's value tariff (default: what "
        "wattloop run remembers)",
    )


def tariffs_of(arguments: argparse.Namespace) -> Tariffs | None:
    """What --tariff names; None without it.

    Raises:
        InputError: The file cannot be read.
        UsageError: Its content is no tariff.
    """
    from wattloop_operator.domain.tariff import read_tariffs

    return None if arguments.tariff is None else read_tariffs(arguments.tariff)


def check_source(arguments: argparse.Namespace) -> None:
    """Check the values of these options, and replace an output folder by the database in it.

    Raises:
        UsageError: A value is out of range, or an option lacks the option that it requires.
    """
    if arguments.database is not None and arguments.kubeconfig is not None:
        raise UsageError("--kubeconfig: not with --database, which reads no cluster; leave one of them out")
    has_database = os.path.lexists(Path(arguments.job) / "wattloop.db")
    reads_cluster = arguments.context is not None or arguments.kubeconfig is not None
    if arguments.database is None and not reads_cluster and has_database:
        arguments.database, arguments.job = arguments.job, None
    if arguments.uid is not None and arguments.database is None:
        raise UsageError("--uid selects among the jobs of a database; add --database DATABASE")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser, optional_job=True)
    lists = parser.add_mutually_exclusive_group()
    lists.add_argument("--jobs", action="store_true", help="list the jobs of --database instead of one job's runs")
    lists.add_argument(
        "--gpus", action="store_true", help="list the GPUs of running attempts in --database: power, limits, holders"
    )
    lists.add_argument(
        "--month", type=_month, metavar="YYYY-MM", help="energy, GPU time, price and carbon of that month by job (UTC)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "focus"),
        default="table",
        help="table (default), csv (as recurrences.csv), json (a list of objects with the columns of the CSV) or, of "
        "--month, focus (CSV with the columns of FinOps FOCUS 1.2)",
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="output file (default: -, stdout)")
    add_tariff_option(parser)


def _month(text: str) -> datetime:
    from wattloop_operator.history.month_usage import month_begin

    try:
        return month_begin(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _list_option(arguments: argparse.Namespace) -> str:
    """The option that lists something of a database; empty if the command shows a job's runs."""
    chosen = {"--jobs": arguments.jobs, "--gpus": arguments.gpus, "--month": arguments.month is not None}
    return next((name for name, is_chosen in chosen.items() if is_chosen), "")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.format == "focus" and arguments.month is None:
        raise UsageError("--format focus is of a month's charges; add --month YYYY-MM")
    if option := _list_option(arguments):
        if arguments.database is None or arguments.job is not None:
            raise UsageError(f"{option} lists what a database has: give --database DATABASE, and no JOB")
        if arguments.namespace or arguments.uid:
            raise UsageError(f"{option} takes --database, --format and --output alone")
        return
    if arguments.job is None:
        raise UsageError("name a JOB; --database DATABASE --jobs lists those of a database")
    check_source(arguments)


@contextlib.contextmanager
def shown_store(url: str) -> Iterator[Store]:
    """A database that is only shown. The rows that cannot be read are left out, and named on standard error.

    Raises:
        UsageError: The URL is invalid.
        OperationError: The database cannot be read; or, at the end of the block, rows were left out.
    """
    from wattloop_operator.store import open_store

    with open_store(url, create=False) as store:
        try:
            yield store
        finally:
            for row in store.unreadable_rows:
                sys.stderr.write(f"{store.name}: {row}; the row is left out\n")
    if count := len(store.unreadable_rows):
        rows = "row is" if count == 1 else "rows are"
        raise OperationError(f"{store.name}: what is shown is a part, since {count} {rows} left out")


@contextlib.contextmanager
def job_history(arguments: argparse.Namespace, tariffs: Tariffs | None = None) -> Iterator[JobHistory]:
    """Read the history of the job that the arguments of `wattloop history` or `wattloop plot` name.

    Args:
        arguments: The arguments.
        tariffs: The tariffs; None: what is remembered with a local run.

    Raises:
        UsageError: There is no such job.
        InputError: An object cannot be parsed.
        OperationError: The database or the cluster cannot be read; or, at the end of the block, rows were left out.
    """
    from wattloop_operator.domain.tariff import NO_TARIFFS
    from wattloop_operator.history.history_sources import JobSelector, cluster_context, cluster_history, stored_history

    if arguments.database is None:
        if "/" in arguments.job:
            raise UsageError(
                f"{arguments.job} is no output folder of wattloop run, and no name of a job; check the path"
            )
        context = cluster_context(arguments.context, arguments.kubeconfig)
        with context.client:
            history = cluster_history(context, arguments.job, arguments.namespace, tariffs or NO_TARIFFS)
        yield history
    else:
        with shown_store(arguments.database) as store:
            selector = JobSelector(arguments.job, arguments.namespace, arguments.uid)
            yield stored_history(store, selector, tariffs)


def _write_list(arguments: argparse.Namespace) -> int:
    from wattloop.files.atomic_write import open_atomic
    from wattloop_operator.history.gpu_holders import GpuLine, gpus_unknown, held_gpus, held_table
    from wattloop_operator.history.job_overview import JobLine, job_keys, overview_table, overviews
    from wattloop_operator.history.lines import write_lines
    from wattloop_operator.history.month_usage import MonthUsage, month_table, month_usages, write_focus

    tariffs = tariffs_of(arguments)
    with shown_store(arguments.database) as store, open_atomic(arguments.output) as stream:
        if arguments.gpus and (why := gpus_unknown(store)):
            raise OperationError(why)
        if arguments.format == "focus":
            write_focus(stream, month_usages(store, arguments.month, tariffs), arguments.month)
            return 0
        found: tuple[type[Line], Sequence[Line], Callable[[Any], Table]]
        if arguments.gpus:
            found = GpuLine, held_gpus(store), held_table
        elif arguments.month is not None:
            found = MonthUsage, month_usages(store, arguments.month, tariffs), month_table
        else:
            found = JobLine, overviews(store, job_keys(store)), overview_table
        kind, lines, table = found
        if arguments.format == "table":
            console(stream, width=None if stream.isatty() else FILE_COLUMNS).print(table(lines))
        else:
            write_lines(stream, kind, lines, arguments.format)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    if _list_option(arguments):
        return _write_list(arguments)
    from wattloop.files.atomic_write import open_atomic
    from wattloop_operator.history.cost_history import summary
    from wattloop_operator.history.energy_origin import energy_note
    from wattloop_operator.history.rows import rows_of, table_of, write_csv, write_json

    with job_history(arguments, tariffs_of(arguments)) as history:
        rows = rows_of(history)
        with open_atomic(arguments.output) as stream:
            if arguments.format == "csv":
                write_csv(stream, rows)
            elif arguments.format == "json":
                write_json(stream, rows)
            else:
                width = None if stream.isatty() else FILE_COLUMNS
                table = console(stream, width=width)
                table.print(table_of(rows, history.title))
                if note := energy_note([row.energy_origin for row in rows]):
                    table.print(note)
        sys.stderr.write(summary(history) + "\n")
    return 0


COMMAND = Command(
    description="Shows the cost of each attempt of a RecurringTrainingJob, also relative to the default configuration. "
    "A cluster keeps only the latest recurrences as objects; the operator's database keeps all.",
    example="  wattloop history wattloop-output/digits\n"
    "  wattloop history digits --database sqlite:///shared.db\n"
    "  wattloop history digits --context production --namespace research --format csv --output digits.csv\n"
    "  wattloop history --database sqlite:///shared.db --jobs\n"
    "  wattloop history --database sqlite:///shared.db --month 2026-03 --format csv",
    configure=_configure,
    run=_run,
    check=_check,
)
