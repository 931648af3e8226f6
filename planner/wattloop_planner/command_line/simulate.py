"""`wattloop simulate`: recurrences on measured traces."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop_planner.simulation.options import OPTIONS, options_of_command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", metavar="FILE", help="CSV: one job per row, with these options as columns, with underscores"
    )
    parser.add_argument("--output", metavar="FILE", required=True, help="CSV: one row per attempt; - for stdout")
    parser.add_argument("--picture", metavar="FILE", help="PNG: mean regret of each policy over the jobs and seeds")
    for name, option in OPTIONS.items():
        default = f" (default: {option.default})" if option.default else ""
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, metavar=name.upper(), help=f"{option.meaning}{default}")


def _check(arguments: argparse.Namespace) -> None:
    if not arguments.jobs:
        options_of_command({name: getattr(arguments, name) for name in OPTIONS})


COMMAND = Command(
    description=(
        "Simulates a recurring training job, or a file of jobs, on measured traces: every recurrence draws a measured "
        "training path, the policy chooses the batch size, and the cost of every attempt counts."
    ),
    example=(
        "  wattloop simulate --train summary_train.csv --power summary_power_a40.csv --dataset cifar100 \\\n"
        "    --network shufflenetv2 --optimizer adadelta --target-metric 0.6 --max-epochs 100 \\\n"
        "    --default-batch-size 1024 --seeds 1-20 --output recurrences.csv\n"
        "  wattloop simulate --jobs jobs.csv --policy zeus --output zeus.csv"
    ),
    configure=_configure,
    run=Deferred("wattloop_planner.commands.simulate:run"),
    check=_check,
)
