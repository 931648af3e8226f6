"""`wattloop simulate`: recurrences on measured traces."""

from __future__ import annotations

import argparse
import textwrap

from wattloop.commands.contract import Command, Deferred
from wattloop.errors import UsageError
from wattloop_planner.simulation.simulation_options import (
    OPTIONS,
    check_required,
    flag_of,
    options_of_command,
    required_options,
)

OUTPUT = "CSV: one row per attempt; - for stdout"
MAX_LINE_CHARACTERS = 79


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = _usage()
    parser.add_argument(
        "--jobs", metavar="FILE", help="CSV: one job per row, with these options as columns, with underscores"
    )
    parser.add_argument("--output", metavar="FILE", help=f"{OUTPUT}; required")
    parser.add_argument("--picture", metavar="FILE", help="PNG: mean regret of each policy over the jobs and seeds")
    workload = parser.add_argument_group("the workload", "all required, here or in every row of --jobs")
    further = parser.add_argument_group("further options")
    for name, option in OPTIONS.items():
        default = f" (default: {option.default})" if option.default else ""
        group = workload if option.default is None else further
        group.add_argument(flag_of(name), dest=name, metavar=name.upper(), help=f"{option.meaning}{default}")


def _usage() -> str:
    """The two forms of the command, with all options that each requires."""
    required = [f"{flag_of(name)}={name.upper()}" for name in required_options()]
    words = " ".join(["--output=FILE", *required, "[OPTIONS]"])
    start = "       wattloop simulate "
    lines = textwrap.fill(
        words, MAX_LINE_CHARACTERS, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )
    return f"%(prog)s --output=FILE --jobs=FILE [OPTIONS]\n{lines}"


def _check(arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.output is None and arguments.jobs:
        raise UsageError(f"--output is missing: {OUTPUT}")
    if arguments.output is None:
        check_required(given, "the command line", [f"--output: {OUTPUT}"])
    if not arguments.jobs:
        options_of_command(given)


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
