"""`wattloop run`: the whole loop on this machine, from one manifest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from wattloop.commands.main import EXIT_FAILURE, EXIT_INTERRUPTED
from wattloop.errors import UsageError
from wattloop.interruption import Interrupted
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import RecurrenceRow, rows_of
from wattloop_operator.history.savings import saving_sentence
from wattloop_operator.history.table import table_of
from wattloop_operator.local.display import AttemptReporter, JsonLinesWriter, live_table
from wattloop_operator.local.gpus import Simulation, has_driver
from wattloop_operator.local.job_file import read_job
from wattloop_operator.local.local_run import LocalRun

ROWS_WHILE_RUNNING = 20
PIPED_WIDTH = 160


def run(arguments: argparse.Namespace) -> int:
    """Carry out ``wattloop run``."""
    job = read_job(arguments.file)
    output = arguments.output or Path("wattloop-output") / job.metadata.name
    run = LocalRun(
        source=arguments.file,
        job=job,
        output=output,
        database=arguments.database,
        recurrences=arguments.recurrences,
        simulation=_simulation(arguments),
        seed=arguments.seed,
    )
    words = Console(stderr=True, highlight=False, soft_wrap=True)
    # A log file shows how far a long run is as well as a terminal does; a reader of JSON lines sees it there.
    table = words.is_terminal or arguments.format == "jsonl"
    attempt_reporter = AttemptReporter(lambda text: words.print(text, markup=False), table=table)
    try:
        snapshot = _carried_out(run, arguments.format, words, attempt_reporter)
    except Interrupted:
        words.print(f"wattloop run: interrupted; the same command goes on from what is kept in {output}")
        return EXIT_INTERRUPTED
    rows = rows_of(JobHistory.of_snapshot(snapshot))
    if arguments.format == "table":
        _print_whole(rows)
    words.print(f"\n{saving_sentence(rows)}\nTable and pictures: {output}")
    if not attempt_reporter.results:
        words.print("Nothing was left to run. To go on: a larger --recurrences; to begin anew: another --output.")
    return 0 if attempt_reporter.is_informative else EXIT_FAILURE


def _carried_out(run: LocalRun, form: str, words: Console, attempt_reporter: AttemptReporter) -> Snapshot:
    """Carry out the run, and show what happens as it happens."""
    if form == "jsonl":
        lines = JsonLinesWriter(sys.stdout)
        return run.carry_out(_both(attempt_reporter.show, lines.show))
    if not words.is_terminal:
        return run.carry_out(attempt_reporter.show)
    with Live(console=words, transient=True, auto_refresh=False) as live:
        return run.carry_out(
            _both(
                attempt_reporter.show,
                lambda snapshot: live.update(live_table(snapshot, ROWS_WHILE_RUNNING), refresh=True),
            )
        )


def _both(first: Callable[[Snapshot], None], second: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
    def show(snapshot: Snapshot) -> None:
        first(snapshot)
        second(snapshot)

    return show


def _print_whole(rows: Sequence[RecurrenceRow]) -> None:
    """The whole table on stdout; where that is no terminal, nothing is cut to a terminal's width."""
    out = Console()
    (out if out.is_terminal else Console(width=PIPED_WIDTH)).print(table_of(rows))


def _simulation(arguments: argparse.Namespace) -> Simulation | None:
    count = arguments.simulated_gpus
    if count is None:
        if has_driver():
            if arguments.time_scale is not None:
                raise UsageError("--time-scale is for simulated GPUs; add --simulated-gpus N")
            return None
        sys.stderr.write(f"no NVIDIA driver on this machine: simulating one {arguments.gpu_model}\n")
        count = 1
    return Simulation(count, arguments.gpu_model, arguments.time_scale, arguments.seed)
