"""`wattloop run`: the whole loop on this machine, from one manifest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from wattloop.commands.contract import Command
from wattloop.errors import UsageError
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_operator.local.gpus import Simulation, has_driver
from wattloop_operator.local.job_file import read_job
from wattloop_operator.local.lines import LineWriter
from wattloop_operator.local.session import LocalRun
from wattloop_operator.local.view import live_table
from wattloop_operator.pictures.job_history import JobHistory
from wattloop_operator.pictures.recurrence_costs import saving_sentence
from wattloop_operator.pictures.row_table import table_of
from wattloop_operator.pictures.rows import RecurrenceRow, rows_of

ROWS_WHILE_RUNNING = 20
PIPED_WIDTH = 160


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a manifest that holds one RecurringTrainingJob")
    parser.add_argument(
        "--recurrences",
        type=_positive,
        metavar="N",
        help="run N recurrences one after another, in place of the schedule",
    )
    parser.add_argument(
        "--simulated-gpus",
        type=_positive,
        metavar="N",
        help="simulate N GPUs (default: 1 where this machine has no NVIDIA driver, else its own GPUs)",
    )
    parser.add_argument("--gpu-model", default="A100", metavar="NAME", help="A40, V100, A100 (default), H100 or H200")
    parser.add_argument(
        "--time-scale",
        type=_positive_number,
        metavar="F",
        help="simulated seconds per real second (default: simulated time moves with the training's work alone, so that "
        "the same seed gives the same figures on every machine)",
    )
    parser.add_argument("--database", metavar="URL", help="default: wattloop.db, a SQLite file in the output folder")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where results go (default: wattloop-output/<name of the job>)"
    )
    parser.add_argument("--seed", type=_whole, default=0, metavar="S", help="changes every random draw (default: 0)")
    parser.add_argument(
        "--format",
        choices=("table", "jsonl"),
        default="table",
        help="table: a live table (default); jsonl: one JSON object on stdout for each attempt that ended",
    )


def _run(arguments: argparse.Namespace) -> int:
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
    words = Console(stderr=True)
    if arguments.format == "jsonl":
        snapshot = run.carry_out(LineWriter(sys.stdout).show)
    else:
        snapshot = _with_table(run.carry_out, words)
        _print_whole(rows_of(JobHistory.of_snapshot(snapshot)))
    sentence = saving_sentence(rows_of(JobHistory.of_snapshot(snapshot)))
    words.print(f"\n{sentence}\nTable and pictures: {output}", highlight=False, soft_wrap=True)
    return 0


def _print_whole(rows: Sequence[RecurrenceRow]) -> None:
    """The whole table on stdout; where that is no terminal, nothing is cut to a terminal's width."""
    out = Console()
    (out if out.is_terminal else Console(width=PIPED_WIDTH)).print(table_of(rows))


def _with_table(carry_out: Callable[[Callable[[Snapshot], None]], Snapshot], words: Console) -> Snapshot:
    if not words.is_terminal:
        return carry_out(lambda _: None)
    with Live(console=words, transient=True, auto_refresh=False) as live:
        return carry_out(lambda snapshot: live.update(live_table(snapshot, ROWS_WHILE_RUNNING), refresh=True))


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


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected at least 1")
    return value


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 0")
    return int(text)


def _positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0")
    return value


COMMAND = Command(
    summary="run a RecurringTrainingJob on this machine, learning with each recurrence",
    description="Runs the RecurringTrainingJob of a manifest on this machine: the operator's engine, planner, store "
    "and agent, processes in place of pods. Interrupt it and start it again: it goes on where it was. Leaves "
    "wattloop.db, recurrences.csv, cost.png and tradeoff.png in the output folder.",
    example="  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1\n"
    "  wattloop run examples/digits/job.yaml --recurrences 24 --format jsonl > recurrences.jsonl",
    configure=_configure,
    run=_run,
)
