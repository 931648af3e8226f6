"""What others would do with the same pipeline: plans to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattloop_planner.frequency.envpipe import envpipe
from wattloop_planner.frequency.plans import Realised, realised
from wattloop_planner.frequency.problem import Problem
from wattloop_planner.frequency.profiles import Option
from wattloop_planner.frequency.schedules import FORWARD


@dataclass(frozen=True)
class Baseline:
    """One point of a baseline.

    Attributes:
        method: ``max-frequency``, ``zeus-global``, ``zeus-per-stage`` or ``envpipe``.
        point: The clock in MHz that makes the point; None where the method has one point only.
        realised: What it takes.
    """

    method: str
    point: int | None
    realised: Realised


def baselines(problem: Problem) -> Iterator[Baseline]:
    """All points of all baselines, method by method."""
    yield Baseline("max-frequency", None, maximum(problem))
    for clock in _common_clocks(problem):
        yield Baseline("zeus-global", clock, _realised(problem, [measured[clock] for measured in problem.measured]))
    yield from _zeus_per_stage(problem)
    yield Baseline("envpipe", None, envpipe(problem))


def maximum(problem: Problem) -> Realised:
    """Every operation at its highest clock, which need not be the fastest."""
    return _realised(problem, [measured[max(measured)] for measured in problem.measured])


def _common_clocks(problem: Problem) -> list[int]:
    clocks = set.intersection(*(set(measured) for measured in problem.measured))
    return sorted(clocks, reverse=True)


def _zeus_per_stage(problem: Problem) -> Iterator[Baseline]:
    """Zeus on each stage alone, forward times balanced against the heaviest stage.

    For each clock of the stage whose forward is longest at the highest clock, every other stage takes its lowest clock
    whose forward is no longer, or its fastest where all are. A stage runs all instructions at its clock.
    """
    kinds = dict(zip(problem.graph.kinds, problem.measured, strict=True))
    forwards = {stage: measured for (stage, instruction), measured in kinds.items() if instruction == FORWARD}
    if len(forwards) < problem.graph.stages:
        return
    heaviest = max(forwards, key=lambda stage: forwards[stage][max(forwards[stage])].time_seconds)
    for clock in sorted(forwards[heaviest], reverse=True):
        longest = forwards[heaviest][clock].time_seconds
        clocks = {stage: _lowest_within(measured, longest) for stage, measured in forwards.items()}
        clocks[heaviest] = clock
        if all(clocks[stage] in measured for (stage, _), measured in kinds.items()):
            chosen = [measured[clocks[stage]] for (stage, _), measured in kinds.items()]
            yield Baseline("zeus-per-stage", clock, _realised(problem, chosen))


def _lowest_within(measured: Mapping[int, Option], longest_seconds: float) -> int:
    within = [clock for clock, option in measured.items() if option.time_seconds <= longest_seconds]
    return min(within) if within else min(measured, key=lambda clock: measured[clock].time_seconds)


def _realised(problem: Problem, of_kind: Sequence[Option]) -> Realised:
    """What the pipeline takes with one option for each kind."""
    times = np.array([option.time_seconds for option in of_kind])[problem.graph.kind_of]
    energies = np.array([option.energy_joules for option in of_kind])[problem.graph.kind_of]
    return realised(problem, times, energies)
