"""Plans: one frequency for each operation, and what it really takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.problem import Choices, Floats, Problem

# Relative; longest paths of the same operations, summed in another order, differ by less.
SAME_TIME = 1e-10


@dataclass(frozen=True)
class Plan:
    """One option for each operation, and what the pipeline then takes.

    Attributes:
        choices: Index of each operation's option among the useful options of its kind, shape (operations,).
        time_seconds: Longest path through the measured times of the chosen frequencies.
        effective_joules: Sum of the effective energies, energy less blocking power times time, of the chosen options.
    """

    choices: Choices
    time_seconds: float
    effective_joules: float


@dataclass(frozen=True)
class Realised:
    """What a pipeline takes under a plan.

    Attributes:
        time_seconds: Time of an iteration.
        energy_joules: Energy of all stages over that time, waiting included.
    """

    time_seconds: float
    energy_joules: float


def realised_plan(problem: Problem, choices: Choices) -> Plan:
    """The plan that makes these choices."""
    return Plan(choices, *problem.pipeline.realise(choices))


def plan_energy_joules(problem: Problem, plan: Plan) -> float:
    """Energy of an iteration under the plan, waiting included."""
    places = problem.first_options[problem.graph.kind_of] + plan.choices
    energies = np.concatenate([options.energies_joules for options in problem.options])[places]
    times = np.concatenate([options.times_seconds for options in problem.options])[places]
    return realised(problem, times, energies).energy_joules


def plan_frequencies(problem: Problem, plan: Plan) -> list[npt.NDArray[np.int64]]:
    """The plan's frequencies in MHz: for each stage those of its operations, in execution order."""
    frequencies = np.concatenate([options.frequencies_megahertz for options in problem.options])
    chosen = frequencies[problem.first_options[problem.graph.kind_of] + plan.choices]
    return [chosen[order] for order in problem.graph.order]


def evaluate(problem: Problem, frequencies: Sequence[Sequence[int]]) -> Realised:
    """What the pipeline takes at these frequencies, whether or not they are worth choosing.

    Args:
        problem: The pipeline.
        frequencies: For each stage the frequencies in MHz of its operations in execution order.

    Raises:
        UsageError: Stages or operations are missing or too many, or a frequency was not measured.
    """
    graph = problem.graph
    if len(frequencies) != graph.stages:
        raise UsageError(f"found {len(frequencies)} stages, expected {graph.stages}")
    times = np.empty(graph.operations)
    energies = np.empty(graph.operations)
    for stage, (row, order) in enumerate(zip(frequencies, graph.order, strict=True)):
        if len(row) != len(order):
            raise UsageError(f"stage {stage}: found {len(row)} operations, expected {len(order)}")
        for operation, frequency in zip(order.tolist(), row, strict=True):
            option = problem.measured[graph.kind_of[operation]].get(int(frequency))
            if option is None:
                raise UsageError(f"{graph.name(operation)}: found {frequency} MHz, expected a frequency of the profile")
            times[operation], energies[operation] = option.time_seconds, option.energy_joules
    return realised(problem, times, energies)


def realised(problem: Problem, times_seconds: Floats, energies_joules: Floats) -> Realised:
    """What the pipeline takes when its operations take this, both of shape (operations,).

    The energy is ``Σ e + P · (S · T - Σ t)``: a stage draws the blocking power P whenever it runs nothing.
    """
    time = problem.pipeline.longest_path(times_seconds)
    waited = problem.graph.stages * time - math.fsum(times_seconds.tolist())
    return Realised(time, math.fsum(energies_joules.tolist()) + problem.blocking_power_watts * waited)


def undominated(plans: Iterable[Plan]) -> list[Plan]:
    """The plans that no other is both no slower than and no dearer in effective energy, slowest first.

    Times that differ by less than ``SAME_TIME`` are one time, of which the cheapest plan is kept.
    """
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.time_seconds, plan.effective_joules)):
        if kept and plan.effective_joules >= kept[-1].effective_joules:
            continue
        if kept and plan.time_seconds <= kept[-1].time_seconds * (1 + SAME_TIME):
            kept.pop()
        kept.append(plan)
    return kept[::-1]
