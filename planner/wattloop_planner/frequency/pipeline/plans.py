"""Plans: one frequency for each operation, with the resulting time and energy."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.instruction_profiles import (
    Option,
    PlannedSetting,
    Rows,
    knob_label,
    setting_of,
)
from wattloop_planner.frequency.pipeline.planning_problem import Choices, Floats, Problem

# Relative tolerance: sums of the same durations in another order differ by less.
SAME_TIME = 1e-10


@dataclass(frozen=True)
class Plan:
    """One option for each operation, with the resulting time and effective energy.

    Attributes:
        choices: Index of each operation's option among the useful options of its kind, shape
            (operations,).
        time_seconds: Length of the longest path with the measured times of the chosen options.
        effective_joules: Sum of the effective energies (energy minus blocking power times time) of the
            chosen options.
    """

    choices: Choices
    time_seconds: float
    effective_joules: float


@dataclass(frozen=True)
class Realised:
    """Time and energy of a pipeline under a plan.

    Attributes:
        energy_joules: Energy of all stages over this time, including waiting.
    """

    time_seconds: float
    energy_joules: float


def realised_plan(problem: Problem, choices: Choices) -> Plan:
    """The plan with these choices."""
    return Plan(choices, *problem.pipeline.realise(choices))


def plan_energy_joules(problem: Problem, plan: Plan) -> float:
    """Energy in joules of an iteration under the plan, including waiting."""
    places = problem.places_of(plan.choices)
    found = realised(problem, problem.option_times_seconds[places], problem.option_energies_joules[places])
    return found.energy_joules


def plan_frequencies(problem: Problem, plan: Plan) -> list[npt.NDArray[np.int64]]:
    """The plan's frequencies in MHz, per stage and in execution order."""
    frequencies = np.concatenate([options.frequencies_megahertz for options in problem.options])
    chosen = frequencies[problem.places_of(plan.choices)]
    return [chosen[order] for order in problem.graph.order]


def option_settings(problem: Problem) -> list[PlannedSetting]:
    """Clock and knobs of the useful options of all kinds, concatenated as `Problem.first_options` says."""
    return [
        PlannedSetting(clock, knobs)
        for options in problem.options
        for clock, knobs in zip(options.frequencies_megahertz.tolist(), options.knobs, strict=True)
    ]


def plan_settings(problem: Problem, plan: Plan) -> list[list[PlannedSetting]]:
    """The plan's clocks and knobs, per stage and in execution order."""
    settings = option_settings(problem)
    places = problem.places_of(plan.choices).tolist()
    return [[settings[places[operation]] for operation in order.tolist()] for order in problem.graph.order]


def evaluate(problem: Problem, rows: Rows) -> Realised:
    """Time and energy of the pipeline at these clocks and knobs, which need not be useful options.

    Args:
        problem: The pipeline.
        rows: Clocks in MHz, or settings, per stage and in execution order.

    Raises:
        UsageError: The number of stages or operations is wrong, or a setting was not measured.
    """
    options = planned_options(problem, rows)
    times = np.array([option.time_seconds for option in options])
    return realised(problem, times, np.array([option.energy_joules for option in options]))


def planned_options(problem: Problem, rows: Rows) -> list[Option]:
    """The option of each operation at its planned clock and knobs, shape (operations,).

    Raises:
        UsageError: The number of stages or operations is wrong, or a setting was not measured.
    """
    graph = problem.graph
    if len(rows) != graph.stages:
        raise UsageError(f"found {len(rows)} stages, expected {graph.stages}")
    found: dict[int, Option] = {}
    for stage, (row, order) in enumerate(zip(rows, graph.order, strict=True)):
        if len(row) != len(order):
            raise UsageError(f"stage {stage}: found {len(row)} operations, expected {len(order)}")
        for operation, entry in zip(order.tolist(), row, strict=True):
            setting = setting_of(entry)
            option = problem.by_setting[graph.kind_of[operation]].get(setting)
            if option is None:
                raise _not_measured(problem, operation, setting)
            found[operation] = option
    return [found[operation] for operation in range(graph.operations)]


def _not_measured(problem: Problem, operation: int, setting: PlannedSetting) -> UsageError:
    place, knobs = problem.graph.name(operation), problem.profile.knobs
    if len(setting.knobs) != len(knobs):
        return UsageError(
            f"{place}: found {len(setting.knobs)} knobs, expected {', '.join(knobs) or 'none'} as in --knobs"
        )
    found = f"{setting.frequency_megahertz} MHz {knob_label(knobs, setting.knobs)}".rstrip()
    return UsageError(
        f"{place}: found {found}, expected a frequency{' and knobs' if knobs else ''} of the profile, or one that "
        "--interpolate adds, with the same step as for the plan"
    )


def realised(problem: Problem, times_seconds: Floats, energies_joules: Floats) -> Realised:
    """Time and energy of the pipeline with these times and energies, both of shape (operations,).

    The energy is ``Σ e + P · (S · T - Σ t)``: an idle stage draws the blocking power P.
    """
    time = problem.pipeline.longest_path(times_seconds)
    waited = problem.graph.stages * time - math.fsum(times_seconds.tolist())
    return Realised(time, math.fsum(energies_joules.tolist()) + problem.blocking_power_watts * waited)


def undominated(plans: Iterable[Plan]) -> list[Plan]:
    """The Pareto-optimal plans in time and effective energy, slowest first.

    Of plans whose times differ by less than ``SAME_TIME``, the one of lowest effective energy remains.
    """
    optimal: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.time_seconds, plan.effective_joules)):
        if optimal and plan.effective_joules >= optimal[-1].effective_joules:
            continue
        if optimal and plan.time_seconds <= optimal[-1].time_seconds * (1 + SAME_TIME):
            optimal.pop()
        optimal.append(plan)
    return optimal[::-1]
