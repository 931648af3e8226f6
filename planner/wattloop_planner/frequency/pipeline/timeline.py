"""When each operation of a pipeline runs, and which operations make the iteration as long as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.plans import Plan
from wattloop_planner.frequency.pipeline.problem import Floats, Problem


@dataclass(frozen=True)
class Timeline:
    """One iteration under a plan; arrays of shape (operations,).

    Attributes:
        starts_seconds: When each operation starts, as early as its predecessors let it.
        durations_seconds: How long it takes.
        powers_watts: What it draws.
        critical: The operations of one longest path, in order.
        time_seconds: Time of the iteration.
    """

    starts_seconds: Floats
    durations_seconds: Floats
    powers_watts: Floats
    critical: npt.NDArray[np.int64]
    time_seconds: float


def timeline(problem: Problem, plan: Plan) -> Timeline:
    """The iteration under this plan."""
    places = problem.first_options[problem.graph.kind_of] + plan.choices
    durations = np.concatenate([options.times_seconds for options in problem.options])[places]
    energies = np.concatenate([options.energies_joules for options in problem.options])[places]
    finishes = np.empty(problem.graph.operations)
    problem.pipeline.finish_times(durations, finishes)
    critical = critical_path(problem.graph, finishes)
    return Timeline(finishes - durations, durations, energies / durations, critical, float(finishes.max()))


def critical_path(graph: OperationGraph, finishes: Floats) -> npt.NDArray[np.int64]:
    """One longest path: from the last operation to end back to the start, by the predecessor that ended last."""
    first, before = graph.predecessors
    operation = int(np.argmax(finishes))
    path = [operation]
    while first[operation] < first[operation + 1]:
        waited_for = before[first[operation] : first[operation + 1]]
        operation = int(waited_for[np.argmax(finishes[waited_for])])
        path.append(operation)
    return np.array(path[::-1], dtype=np.int64)
