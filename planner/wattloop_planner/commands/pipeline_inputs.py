"""The pipeline that a command's options describe."""

from __future__ import annotations

import argparse
import time

from wattloop.errors import UsageError
from wattloop_planner.command_line.pipeline_options import INTERLEAVED
from wattloop_planner.frequency.pipeline.clock_interpolation import clocks_between, interpolated
from wattloop_planner.frequency.pipeline.graph import OperationGraph, schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.profile_file import read_blocking_power, read_profile
from wattloop_planner.frequency.pipeline.schedules import SCHEDULES
from wattloop_planner.frequency.pipeline.user_graph import read_graph

DEFAULT_CHUNKS = 2


def read_problem(arguments: argparse.Namespace, phase_seconds: dict[str, float] | None = None) -> Problem:
    """Read the profile and build the graph.

    Args:
        arguments: The options of `add_pipeline_options`.
        phase_seconds: Receives the time of reading (``profile``) and building (``graph``).

    Raises:
        UsageError: The options contradict each other or the graph file.
        InputError: A file is invalid.
    """
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
    profile = read_profile(arguments.profile, arguments.knobs)
    step = arguments.interpolate
    return profile if step is None else interpolated(profile, clocks_between(profile, step))


def _graph(arguments: argparse.Namespace) -> OperationGraph:
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
