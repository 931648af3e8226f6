"""The options that describe a pipeline, for every command that plans or emulates one."""

from __future__ import annotations

import argparse

from wattloop.errors import UsageError

# The keys of `pipeline.schedules.SCHEDULES`, whose import needs NumPy; a test compares them.
SCHEDULE_NAMES = ("1f1b", "early-recompute-1f1b", "gpipe", "interleaved")
INTERLEAVED = "interleaved"


def add_pipeline_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the profile and of the schedule."""
    parser.add_argument("--profile", metavar="CSV", help="stage, instruction, frequency (MHz), time (s), energy (J)")
    parser.add_argument("--stages", type=int, metavar="S", help="number of pipeline stages")
    parser.add_argument("--microbatches", type=int, metavar="M", help="number of microbatches in an iteration")
    parser.add_argument(
        "--blocking-power",
        type=float,
        metavar="W",
        help="power of a GPU that waits for another stage (default: the profile's column blocking_power)",
    )
    parser.add_argument(
        "--schedule", choices=SCHEDULE_NAMES, default="1f1b", help="order of operations (default: 1f1b)"
    )
    parser.add_argument("--chunks", type=int, metavar="V", help="model chunks per stage, for interleaved (default: 2)")
    parser.add_argument(
        "--knobs",
        type=_columns,
        metavar="COLUMN,...",
        default=(),
        help="further columns of the profile that an operation's option consists of, beside the frequency",
    )
    parser.add_argument(
        "--interpolate",
        type=int,
        metavar="MHZ",
        help="add clocks at this step between the measured ones, where they are certain within 1 %%",
    )
    parser.add_argument("--graph", metavar="FILE", help="JSON file with a graph, instead of a schedule")


def _columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def check_pipeline_options(arguments: argparse.Namespace, command: str, *further: str) -> None:
    """Check that the options describe a pipeline.

    Args:
        arguments: The parsed arguments.
        command: The command, for errors.
        further: Names of further required arguments.

    Raises:
        UsageError: An option is missing, or options exclude each other.
    """
    _require(arguments, command, *further, "profile")
    if arguments.interpolate is not None and arguments.interpolate < 1:
        raise UsageError(f"--interpolate {arguments.interpolate}: must be at least 1 MHz")
    if arguments.graph is not None:
        return
    _require(arguments, command, "stages", "microbatches")
    if arguments.chunks is not None and arguments.schedule != INTERLEAVED:
        raise UsageError(f"--chunks {arguments.chunks}: only --schedule {INTERLEAVED} has several chunks per stage")


def _require(arguments: argparse.Namespace, command: str, *names: str) -> None:
    missing = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)}: missing; see {command} --help")
