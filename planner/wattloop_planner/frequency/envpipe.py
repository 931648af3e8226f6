"""EnvPipe (Choi et al., USENIX ATC '23): slow down what is not on the pipeline's outer envelope."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.plans import Floats, Realised, realised
from wattloop_planner.frequency.problem import Problem
from wattloop_planner.frequency.timeline import critical_path

# The original walk may go on for ever; this one ends after so many operations on critical paths at the latest.
MAX_RAISED = 1_000_000


def envpipe(problem: Problem) -> Realised:
    """What the pipeline takes under EnvPipe's answer.

    The envelope, which is the last stage and each stage's first and last operation, runs at the highest clock. All
    others start at the clock of least energy. While one of them that can still be raised is on the critical path, those
    on it are raised by one step of their clock.
    """
    graph = problem.graph
    tables = [_Clocks.of(problem, kind) for kind in range(len(graph.kinds))]
    steps = np.array([table.cheapest for table in tables])[graph.kind_of]
    pinned = graph.stage_of == graph.stages - 1
    pinned[[order[end] for order in graph.order if len(order) for end in (0, -1)]] = True
    steps[pinned] = 0
    times, energies = _look_up(tables, graph.kind_of, steps)
    finishes = np.empty(graph.operations)
    raised = 0
    while raised < MAX_RAISED:
        problem.pipeline.finish_times(times, finishes)
        path = critical_path(graph, finishes)
        raisable = path[(steps[path] > 0) & ~pinned[path]]
        if len(raisable) == 0:
            break
        steps[raisable] -= 1
        times[raisable], energies[raisable] = _look_up(tables, graph.kind_of[raisable], steps[raisable])
        raised += len(path)
    return realised(problem, times, energies)


class _Clocks:
    """The options of one kind from the highest clock down."""

    def __init__(self, times: Floats, energies: Floats) -> None:
        self.times, self.energies = times, energies
        self.cheapest = int(np.argmin(energies))

    @classmethod
    def of(cls, problem: Problem, kind: int) -> _Clocks:
        measured = problem.measured[kind]
        options = [measured[clock] for clock in sorted(measured, reverse=True)]
        return cls(
            np.array([option.time_seconds for option in options]),
            np.array([option.energy_joules for option in options]),
        )


def _look_up(
    tables: list[_Clocks], kinds: npt.NDArray[np.int32], steps: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    starts = np.cumsum([0, *(len(table.times) for table in tables)])
    places = starts[kinds] + steps
    times = np.concatenate([table.times for table in tables])
    energies = np.concatenate([table.energies for table in tables])
    return times[places], energies[places]
