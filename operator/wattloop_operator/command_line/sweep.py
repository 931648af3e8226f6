"""Options of `wattloop sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeVar

from wattloop.commands.contract import Command, Deferred
from wattloop_operator.command_line.run import add_gpu_options, non_negative_integer, positive_integer

Value = TypeVar("Value")
NO_LIMIT = "none"
MAX_VALUES = 256


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


COMMAND = Command(
    description="Runs the RecurringTrainingJob of a manifest on this machine once, or several times, at each batch "
    "size and power limit of a grid, with the processes of `wattloop run`, and shows which of them trade energy "
    "against time best. Nothing is chosen, stopped for its cost or published. After an interruption, the same command "
    "goes on; more batch sizes, limits or repeats add to the same folder. It leaves sweep.csv, tradeoff.png and "
    "wattloop.db in the output folder, and prints the mean of each point.",
    example="  wattloop sweep examples/digits/job.yaml --batch-sizes 64,256,1024 --power-limits 150,250,400 "
    "--simulated-gpus 1",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.sweep:run"),
)
