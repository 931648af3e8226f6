"""`wattloop sweep`: runs a job at each point of a grid of batch sizes and power limits."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattloop.commands.contract import Command
from wattloop.commands.main import EXIT_FAILURE, EXIT_INTERRUPTED
from wattloop.commands.output import console
from wattloop.errors import UsageError
from wattloop.interruption import Interrupted
from wattloop_operator.command_line.gpu_options import (
    add_gpu_options,
    non_negative_integer,
    positive_integer,
    simulation_of,
)

if TYPE_CHECKING:
    from wattloop_operator.local.local_sweep import GridPoint

Value = TypeVar("Value")
NO_LIMIT = "none"
MAX_VALUES = 256
# Width of the table if stdout is not a terminal.
PIPED_WIDTH = 160


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="MANIFEST", help="manifest that contains one RecurringTrainingJob")
    parser.add_argument(
        "--batch-sizes",
        type=_batch_sizes,
        metavar="32,64",
        help="batch sizes to run (default: the candidates of the job)",
    )
    parser.add_argument(
        "--power-limits",
        type=_power_limits,
        default=(None,),
        metavar="150,200",
        help=f"power limits of each GPU to run, in watts; {NO_LIMIT}: no limit (default: {NO_LIMIT})",
    )
    parser.add_argument(
        "--repeats", type=positive_integer, default=1, metavar="R", help="runs at each of them (default: 1)"
    )
    add_gpu_options(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="output folder (default: wattloop-sweep/<name of the job>)"
    )
    parser.add_argument(
        "--seed",
        type=non_negative_integer,
        default=0,
        metavar="S",
        help="seed of the trainings; runs of the same repeat have the same one (default: 0)",
    )


def _batch_sizes(text: str) -> tuple[int, ...]:
    return _distinct(text, [positive_integer(part) for part in text.split(",")])


def _power_limits(text: str) -> tuple[int | None, ...]:
    return _distinct(text, [None if part == NO_LIMIT else positive_integer(part) for part in text.split(",")])


def _distinct(text: str, values: list[Value]) -> tuple[Value, ...]:
    if len(values) > MAX_VALUES:
        raise argparse.ArgumentTypeError(f"found {len(values)} values, expected at most {MAX_VALUES}")
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected each value once")
    return tuple(values)


def _run(arguments: argparse.Namespace) -> int:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from wattloop_operator.api.field_types import MAX_BATCH_SIZE
    from wattloop_operator.history.energy_origin import energy_advice
    from wattloop_operator.history.rows import rows_of
    from wattloop_operator.local.display import AttemptReporter
    from wattloop_operator.local.job_file import read_job
    from wattloop_operator.local.local_sweep import MAX_RUNS, Grid, Sweep, rows_of_sweep, table_of_sweep
    from wattloop_operator.plots.tradeoff import tradeoff_points

    job = read_job(arguments.file)
    grid = Grid(arguments.batch_sizes or job.spec.batch_size.candidates, arguments.power_limits, arguments.repeats)
    if len(grid) > MAX_RUNS:
        raise UsageError(f"found {len(grid)} runs, expected at most {MAX_RUNS}; give fewer values or --repeats")
    if max(grid.batch_sizes) > MAX_BATCH_SIZE:
        raise UsageError(f"--batch-sizes: found {max(grid.batch_sizes)}, expected at most {MAX_BATCH_SIZE}")
    output = arguments.output or Path("wattloop-sweep") / job.metadata.name
    sweep = Sweep(arguments.file, job, output, grid, simulation_of(arguments, job), arguments.seed)
    stderr = console(stderr=True, soft_wrap=True)
    reporter = AttemptReporter(stderr.print)
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
    stdout = console()
    (stdout if stdout.is_terminal else console(width=PIPED_WIDTH)).print(table_of_sweep(rows, tradeoff_points(history)))
    if advice := energy_advice([row.energy_origin for row in rows_of(history)]):
        stderr.print(f"\n{advice}")
    stderr.print(f"\nsweep.csv and tradeoff.png: {output}")
    if any(row.outcome == "reached" for row in rows):
        return 0
    stderr.print("no run reached the target; lower objective.target.threshold, raise maxEpochs, or fix the training")
    return EXIT_FAILURE


COMMAND = Command(
    description="Runs the RecurringTrainingJob of a manifest on this machine once, or several times, at each batch "
    "size and power limit of a grid, with the processes of `wattloop run`, and shows which of them trade energy "
    "against time best. Nothing is chosen, stopped for its cost or published. After an interruption, the same command "
    "goes on; more batch sizes, limits or repeats add to the same folder. It leaves sweep.csv, tradeoff.png and "
    "wattloop.db in the output folder, and prints the mean of each point.",
    example="  wattloop sweep examples/digits/job.yaml --batch-sizes 64,256,1024 --power-limits 150,250,400 "
    "--simulated-gpus 1",
    configure=_configure,
    run=_run,
)
