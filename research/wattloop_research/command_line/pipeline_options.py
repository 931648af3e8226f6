"""What the commands of pipelines share: the options that describe a pipeline, its problem, and rows of numbers."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wattloop.errors import UsageError
from wattloop.files.csv_table import write_csv_table

if TYPE_CHECKING:
    from wattloop_planner.frequency.pipeline.graph import OperationGraph
    from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
    from wattloop_planner.frequency.pipeline.planning_problem import Problem

# The keys of `pipeline.schedules.SCHEDULES`, whose import needs NumPy; a test compares them.
SCHEDULE_NAMES = ("1f1b", "early-recompute-1f1b", "gpipe", "interleaved")
INTERLEAVED = "interleaved"
DEFAULT_CHUNKS = 2


def finite(value: object) -> object:
    """The value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if _is_nan(value) else value


def write_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as CSV on stdout; NaN is an empty cell."""
    cells = ({name: "" if _is_nan(value) else value for name, value in row.items()} for row in rows)
    write_csv_table(sys.stdout, tuple(rows[0]), cells)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


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


def read_problem(arguments: argparse.Namespace, phase_seconds: dict[str, float] | None = None) -> Problem:
    """Read the profile and build the graph.

    Args:
        arguments: The options of `add_pipeline_options`.
        phase_seconds: Receives the time of reading (``profile``) and building (``graph``).

    Raises:
        UsageError: The options contradict each other or the graph file.
        InputError: A file is invalid.
    """
    from wattloop_planner.frequency.pipeline.planning_problem import pipeline_problem
    from wattloop_planner.frequency.pipeline.profile_file import read_blocking_power

    started = time.perf_counter()
    graph = _graph(arguments)
    read = time.perf_counter()
    blocking = arguments.blocking_power
    if blocking is None:
        blocking = read_blocking_power(arguments.profile)
    problem = pipeline_problem(graph, _profile(arguments), blocking)
    if phase_seconds is not None:
        phase_seconds["profile"] = time.perf_counter() - read
        phase_seconds["graph"] = read - started
    return problem


def _profile(arguments: argparse.Namespace) -> Profile:
    from wattloop_planner.frequency.pipeline.clock_interpolation import clocks_between, interpolated
    from wattloop_planner.frequency.pipeline.profile_file import read_profile

    profile = read_profile(arguments.profile, arguments.knobs)
    step = arguments.interpolate
    return profile if step is None else interpolated(profile, clocks_between(profile, step))


def _graph(arguments: argparse.Namespace) -> OperationGraph:
    from wattloop_planner.frequency.pipeline.graph import schedule_graph
    from wattloop_planner.frequency.pipeline.schedules import SCHEDULES
    from wattloop_research.frequency.user_graph import read_graph

    if arguments.graph is not None:
        graph = read_graph(arguments.graph)
        for name, found in (("stages", graph.stages), ("microbatches", graph.microbatches)):
            given = getattr(arguments, name)
            if given is not None and given != found:
                raise UsageError(f"--{name} {given}: {arguments.graph} has {found}; leave the option out with --graph")
        return graph
    chunks = arguments.chunks
    if chunks is None:
        chunks = DEFAULT_CHUNKS if arguments.schedule == INTERLEAVED else 1
    return schedule_graph(SCHEDULES[arguments.schedule](arguments.stages, arguments.microbatches, chunks))
