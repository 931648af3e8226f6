"""The timeline of an iteration under a plan, with its critical path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Plan


@dataclass(frozen=True)
class Timeline:
    """One iteration under a plan; arrays of shape (operations,).

    Attributes:
        starts_seconds: Earliest start of each operation.
        durations_seconds: Duration of each operation.
        powers_watts: Power of each operation.
        critical: The operations of one longest path, in order.
        time_seconds: Time of the iteration.
    """

    starts_seconds: Floats
    durations_seconds: Floats
    powers_watts: Floats
    critical: npt.NDArray[np.int64]
    time_seconds: float


def timeline(problem: Problem, plan: Plan) -> Timeline:
    """The timeline of an iteration under a plan."""
    places = problem.first_options[problem.graph.kind_of] + plan.choices
    durations = np.concatenate([options.times_seconds for options in problem.options])[places]
    energies = np.concatenate([options.energies_joules for options in problem.options])[places]
    finishes = np.empty(problem.graph.operations)
    problem.pipeline.finish_times(durations, finishes)
    critical = critical_path(problem.graph, finishes)
    return Timeline(finishes - durations, durations, energies / durations, critical, float(finishes.max()))


def critical_path(graph: OperationGraph, finishes: Floats) -> npt.NDArray[np.int64]:
    """One longest path, found backwards from the last operation by the predecessor that ends last."""
    first, before = graph.predecessors
    operation = int(np.argmax(finishes))
    path = [operation]
    while first[operation] < first[operation + 1]:
        waited_for = before[first[operation] : first[operation + 1]]
        operation = int(waited_for[np.argmax(finishes[waited_for])])
        path.append(operation)
    return np.array(path[::-1], dtype=np.int64)
