"""Options of `wattloop run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.local.local_gpus import MAX_GPUS, MAX_TIME_SCALE, MODELS

# Of an integer; more do not fit into the store.
MAX_DIGITS = 18


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="manifest that contains one RecurringTrainingJob")
    parser.add_argument(
        "--recurrences",
        type=positive_integer,
        metavar="N",
        help="run N recurrences one after another, instead of by the job's schedule",
    )
    add_gpu_options(parser)
    parser.add_argument(
        "--database",
        metavar="DATABASE",
        help="a file or a URL (default: wattloop.db, a SQLite file in the output folder)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="output folder (default: wattloop-output/<name of the job>)"
    )
    parser.add_argument(
        "--seed", type=non_negative_integer, default=0, metavar="S", help="seed of all random draws (default: 0)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "jsonl"),
        default="table",
        help="table: a live table (default); jsonl: one JSON object on stdout for each ended attempt",
    )


def add_gpu_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the GPUs of a local run."""
    parser.add_argument(
        "--simulated-gpus",
        type=_gpu_count,
        metavar="N",
        help="simulate N GPUs (default: use this machine's own; without an NVIDIA driver, `wattloop run` measures its "
        "processors by RAPL, or the time alone, and `wattloop sweep` simulates one)",
    )
    parser.add_argument(
        "--gpu-model",
        choices=MODELS,
        default="A100",
        metavar="NAME",
        help=f"model of simulated GPUs: {', '.join(MODELS)} (default: A100)",
    )
    parser.add_argument(
        "--simulated-load",
        metavar="LOAD",
        help="load that a training puts on the simulated GPUs without knowing them: cpu (busy as long as the training "
        "uses a processor) or busy=F (busy for this share of its time); default: the manifest's annotation "
        "wattloop.dev/simulated-load, else none, and the GPUs are idle unless the training occupies them",
    )
    parser.add_argument(
        "--time-scale",
        type=_positive_number,
        metavar="F",
        help="simulated seconds per real second (default: simulated time advances only with the training's work, so "
        "that the same seed gives the same results on every machine; for a job with power.frequencyPlan: 1)",
    )


def positive_integer(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, 1)


def _gpu_count(text: str) -> int:
    value = positive_integer(text)
    if value > MAX_GPUS:
        raise argparse.ArgumentTypeError(f"found {text}, expected at most {MAX_GPUS}")
    return value


def non_negative_integer(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, 0)


def _integer(text: str, minimum: int) -> int:
    is_integer = text.isascii() and text.isdecimal()
    if not is_integer or len(text) > MAX_DIGITS or int(text) < minimum:
        digits = f" and at most {MAX_DIGITS} digits" if is_integer and len(text) > MAX_DIGITS else ""
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected an integer of at least {minimum}{digits}")
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
    description="Runs the RecurringTrainingJob of a manifest on this machine with the code of the operator, the "
    "planner, the store and the agent; each training is a process instead of a pod. After an interruption, the same "
    "command continues. It leaves wattloop.db, recurrences.csv, cost.png and tradeoff.png in the output folder.",
    example="  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1\n"
    "  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1 --format jsonl > recurrences.jsonl",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.run:run"),
)
