"""`wattloop run`: the whole loop on this machine, from one manifest."""

from __future__ import annotations

import argparse
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.local.gpus import MAX_GPUS, MAX_TIME_SCALE, MODELS


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


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected at least 1")
    return value


def _gpus(text: str) -> int:
    value = _positive(text)
    if value > MAX_GPUS:
        raise argparse.ArgumentTypeError(f"found {text}, expected at most {MAX_GPUS}")
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
    if not 0 < value <= MAX_TIME_SCALE:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0, at most {MAX_TIME_SCALE:g}")
    return value


COMMAND = Command(
    summary="run a RecurringTrainingJob on this machine, learning with each recurrence",
    description="Runs the RecurringTrainingJob of a manifest on this machine: the operator's engine, planner, store "
    "and agent, processes in place of pods. Interrupt it and start it again: it goes on where it was. Leaves "
    "wattloop.db, recurrences.csv, cost.png and tradeoff.png in the output folder.",
    example="  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1\n"
    "  wattloop run examples/digits/job.yaml --recurrences 24 --format jsonl > recurrences.jsonl",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.run:run"),
)
