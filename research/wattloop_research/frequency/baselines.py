"""Baselines: the plans of other methods for the same pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.graph import critical_path
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, PlannedSetting
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Realised, realised
from wattloop_planner.frequency.pipeline.schedules import FORWARD
from wattloop_research.training.baseline import balanced_stages

# The original algorithm may not terminate; this one ends after this many operations on critical paths.
MAX_RAISED = 1_000_000
ENVPIPE = "envpipe"


@dataclass(frozen=True)
class Baseline:
    """One point of a baseline.

    Attributes:
        point: The clock in MHz that gives the point; None if the method has one point.
        settings: What EnvPipe's plan sets, per stage and in execution order; empty for other methods, whose plans are
            known by their point.
    """

    method: str
    point: int | None
    realised: Realised
    settings: Sequence[Sequence[PlannedSetting]] = ()


def baselines(problem: Problem) -> Iterator[Baseline]:
    """All points of all baselines, method by method."""
    yield Baseline("max-frequency", None, max_frequency(problem))
    for clock in sorted(set.intersection(*map(set, problem.measured)), reverse=True):
        yield Baseline("zeus-global", clock, _realised(problem, [measured[clock] for measured in problem.measured]))
    yield from _zeus_per_stage(problem)
    yield envpipe(problem)


def max_frequency(problem: Problem) -> Realised:
    """Time and energy with every operation at its highest clock, which need not be the fastest."""
    return _realised(problem, [measured[max(measured)] for measured in problem.measured])


def _zeus_per_stage(problem: Problem) -> Iterator[Baseline]:
    """Zeus on each stage alone, with forward times balanced against the heaviest stage.

    A stage runs all instructions at one clock.
    """
    kinds = dict(zip(problem.graph.kinds, problem.measured, strict=True))
    forwards = {stage: measured for (stage, instruction), measured in kinds.items() if instruction == FORWARD}
    if len(forwards) < problem.graph.stages:
        return
    seconds = {
        stage: {clock: option.time_seconds for clock, option in measured.items()}
        for stage, measured in forwards.items()
    }
    for clock, clocks in balanced_stages(seconds).items():
        if all(clocks[stage] in measured for (stage, _), measured in kinds.items()):
            chosen = [measured[clocks[stage]] for (stage, _), measured in kinds.items()]
            yield Baseline("zeus-per-stage", clock, _realised(problem, chosen))


def _realised(problem: Problem, of_kind: Sequence[Option]) -> Realised:
    """Time and energy of the pipeline with one option for each kind."""
    times = np.array([option.time_seconds for option in of_kind])[problem.graph.kind_of]
    energies = np.array([option.energy_joules for option in of_kind])[problem.graph.kind_of]
    return realised(problem, times, energies)


def envpipe(problem: Problem) -> Baseline:
    """The plan of EnvPipe (Choi et al., USENIX ATC '23).

    The envelope (the last stage, and the first and last operation of each stage) runs at the highest
    clock. All other operations start at the clock of minimum energy. While the critical path contains
    operations whose clock can be raised, these are raised by one step.
    """
    graph = problem.graph
    tables = [_ClockTable.of(problem, kind) for kind in range(len(graph.kinds))]
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
    of_operations = [tables[kind].settings[step] for kind, step in zip(graph.kind_of, steps, strict=True)]
    settings = [[of_operations[operation] for operation in order.tolist()] for order in graph.order]
    return Baseline(ENVPIPE, None, realised(problem, times, energies), settings)


class _ClockTable:
    """The options of one kind, in order of falling clocks."""

    def __init__(self, times: Floats, energies: Floats, settings: Sequence[PlannedSetting]) -> None:
        self.times, self.energies, self.settings = times, energies, settings
        self.cheapest = int(np.argmin(energies))

    @classmethod
    def of(cls, problem: Problem, kind: int) -> _ClockTable:
        measured = problem.measured[kind]
        options = [measured[clock] for clock in sorted(measured, reverse=True)]
        return cls(
            np.array([option.time_seconds for option in options]),
            np.array([option.energy_joules for option in options]),
            [option.setting for option in options],
        )


def _look_up(
    tables: list[_ClockTable], kinds: npt.NDArray[np.int32], steps: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    starts = np.cumsum([0, *(len(table.times) for table in tables)])
    places = starts[kinds] + steps
    times = np.concatenate([table.times for table in tables])
    energies = np.concatenate([table.energies for table in tables])
    return times[places], energies[places]
