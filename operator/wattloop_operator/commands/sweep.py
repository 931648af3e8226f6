"""`wattloop sweep`: runs a job at each point of a grid of batch sizes and power limits."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from wattloop.commands.main import EXIT_FAILURE, EXIT_INTERRUPTED
from wattloop.errors import UsageError
from wattloop.interruption import Interrupted
from wattloop_operator.api.field_types import MAX_BATCH_SIZE
from wattloop_operator.commands.run import PIPED_WIDTH, simulation_of
from wattloop_operator.history.energy_origin import energy_advice
from wattloop_operator.history.rows import rows_of
from wattloop_operator.local.display import AttemptReporter
from wattloop_operator.local.job_file import read_job
from wattloop_operator.local.local_sweep import Sweep
from wattloop_operator.local.sweep_grid import MAX_RUNS, Grid, GridPoint, rows_of_sweep, table_of_sweep
from wattloop_operator.plots.tradeoff import tradeoff_points


def run(arguments: argparse.Namespace) -> int:
    """Run ``wattloop sweep``."""
    job = read_job(arguments.file)
    grid = Grid(arguments.batch_sizes or job.spec.batch_size.candidates, arguments.power_limits, arguments.repeats)
    if len(grid) > MAX_RUNS:
        raise UsageError(f"found {len(grid)} runs, expected at most {MAX_RUNS}; give fewer values or --repeats")
    if max(grid.batch_sizes) > MAX_BATCH_SIZE:
        raise UsageError(f"--batch-sizes: found {max(grid.batch_sizes)}, expected at most {MAX_BATCH_SIZE}")
    output = arguments.output or Path("wattloop-sweep") / job.metadata.name
    sweep = Sweep(arguments.file, job, output, grid, simulation_of(arguments, job), arguments.seed)
    stderr = Console(stderr=True, highlight=False, soft_wrap=True)
    reporter = AttemptReporter(lambda text: stderr.print(text, markup=False))
    # Of the stream itself: notebooks force colours, by which rich takes a pipe for a terminal.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=stderr, transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("sweep", total=len(grid))

            def show(ended: int, point: GridPoint | None) -> None:
                progress.update(task, completed=ended, description="sweep" if point is None else str(point))

            history = sweep.carry_out(show, reporter.show)
    except Interrupted:
        stderr.print(f"wattloop sweep: interrupted; the same command continues the sweep in {output}")
        return EXIT_INTERRUPTED
    rows = rows_of_sweep(history)
    stdout = Console()
    (stdout if stdout.is_terminal else Console(width=PIPED_WIDTH)).print(table_of_sweep(rows, tradeoff_points(history)))
    if advice := energy_advice([row.energy_origin for row in rows_of(history)]):
        stderr.print(f"\n{advice}")
    stderr.print(f"\nsweep.csv and tradeoff.png: {output}")
    if any(row.outcome == "reached" for row in rows):
        return 0
    stderr.print("no run reached the target; lower objective.target.threshold, raise maxEpochs, or fix the training")
    return EXIT_FAILURE
