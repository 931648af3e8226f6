"""`wattloop run`: the whole loop on this machine, from one manifest."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live

from wattloop.commands.contract import Command
from wattloop.commands.main import EXIT_CANNOT, EXIT_INTERRUPTED
from wattloop.errors import UsageError
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_operator.local.endings import Endings
from wattloop_operator.local.gpus import LARGEST_TIME_SCALE, MODELS, MOST_GPUS, Simulation, has_driver
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
        type=_gpus,
        metavar="N",
        help="simulate N GPUs (default: 1 where this machine has no NVIDIA driver, else its own GPUs)",
    )
    parser.add_argument(
        "--gpu-model", choices=MODELS, default="A100", metavar="NAME", help=f"{', '.join(MODELS)} (default: A100)"
    )
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
    words = Console(stderr=True, highlight=False, soft_wrap=True)
    # A log file shows how far a long run is as well as a terminal does; a reader of JSON lines sees it there.
    table = words.is_terminal or arguments.format == "jsonl"
    endings = Endings(lambda text: words.print(text, markup=False), table=table)
    try:
        with _ended_by(signal.SIGTERM, signal.SIGHUP):
            snapshot = _carried_out(run, arguments.format, words, endings)
    except KeyboardInterrupt:
        words.print(f"wattloop run: interrupted; the same command goes on from what is kept in {output}")
        return EXIT_INTERRUPTED
    rows = rows_of(JobHistory.of_snapshot(snapshot))
    if arguments.format == "table":
        _print_whole(rows)
    words.print(f"\n{saving_sentence(rows)}\nTable and pictures: {output}")
    if not endings.results:
        words.print("Nothing was left to run. To go on: a larger --recurrences; to begin anew: another --output.")
    return 0 if endings.taught else EXIT_CANNOT


def _carried_out(run: LocalRun, form: str, words: Console, endings: Endings) -> Snapshot:
    """Carry out the run, and show what happens as it happens."""
    if form == "jsonl":
        lines = LineWriter(sys.stdout)
        return run.carry_out(_both(endings.show, lines.show))
    if not words.is_terminal:
        return run.carry_out(endings.show)
    with Live(console=words, transient=True, auto_refresh=False) as live:
        return run.carry_out(
            _both(endings.show, lambda snapshot: live.update(live_table(snapshot, ROWS_WHILE_RUNNING), refresh=True))
        )


def _both(first: Callable[[Snapshot], None], second: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
    def show(snapshot: Snapshot) -> None:
        first(snapshot)
        second(snapshot)

    return show


@contextlib.contextmanager
def _ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Take these signals as Ctrl-C is taken: processes are ended, GPUs given back, results written."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected at least 1")
    return value


def _gpus(text: str) -> int:
    value = _positive(text)
    if value > MOST_GPUS:
        raise argparse.ArgumentTypeError(f"found {text}, expected at most {MOST_GPUS}")
    return value


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected a whole number of at least 0")
    return int(text)


def _positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= LARGEST_TIME_SCALE:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0, at most {LARGEST_TIME_SCALE:g}")
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
