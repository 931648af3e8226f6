"""The stated error of a plan's difference to another plan, against many profiles measured with noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, profile_of
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import evaluate
from wattloop_planner.frequency.pipeline.schedules import OneForwardOneBackward
from wattloop_planner.frequency.pipeline.uncertainty import difference_errors

STAGES, MICROBATCHES = 3, 4
CLOCKS = (1410, 1200, 1000)
FASTEST = [[1410] * (2 * MICROBATCHES)] * STAGES
SLOWER = [[1200] * (2 * MICROBATCHES), [1410] * (2 * MICROBATCHES), [1000] * (2 * MICROBATCHES)]
RELATIVE_ERROR = 0.01


def problem(noise: Callable[[], float], *, errors: bool = True) -> Problem:
    """Three stages, of which the second takes longest, measured with noise."""
    options = {}
    for stage, work in enumerate((0.08, 0.1, 0.07)):
        for kind, factor in (("forward", 1), ("backward", 2)):
            exact = [(clock, factor * work * 1410 / clock, factor * 20 * (clock / 1410) ** 2) for clock in CLOCKS]
            options[stage, kind] = [
                Option(
                    clock,
                    time * (1 + RELATIVE_ERROR * noise()),
                    energy * (1 + RELATIVE_ERROR * noise()),
                    time_error_seconds=RELATIVE_ERROR * time if errors else None,
                    energy_error_joules=RELATIVE_ERROR * energy if errors else None,
                )
                for clock, time, energy in exact
            ]
    graph = schedule_graph(OneForwardOneBackward(STAGES, MICROBATCHES))
    return pipeline_problem(graph, profile_of("example", options), 60.0)


def exact_zero() -> float:
    return 0.0


def test_the_stated_errors_are_the_deviations_of_profiles_measured_with_noise() -> None:
    random = np.random.default_rng(7)
    exact = problem(exact_zero)
    slower, fastest = evaluate(exact, SLOWER), evaluate(exact, FASTEST)
    scores = []
    for _ in range(150):
        noisy = problem(lambda: float(random.standard_normal()))
        (error,) = difference_errors(noisy, [SLOWER], FASTEST)
        found, base = evaluate(noisy, SLOWER), evaluate(noisy, FASTEST)
        time = (found.time_seconds - base.time_seconds) - (slower.time_seconds - fastest.time_seconds)
        energy = (found.energy_joules - base.energy_joules) - (slower.energy_joules - fastest.energy_joules)
        scores.append((time / error.time_seconds, energy / error.energy_joules))
    deviations = np.sqrt(np.mean(np.square(scores), axis=0))
    assert deviations == pytest.approx([1.0, 1.0], abs=0.2)


def test_what_two_plans_have_in_common_has_no_error() -> None:
    (same,) = difference_errors(problem(exact_zero), [FASTEST], FASTEST)
    assert (same.time_seconds, same.energy_joules) == (0.0, 0.0)
    # The first stage is not on the critical path, so its clock changes the energy alone.
    (beside,) = difference_errors(problem(exact_zero), [[[1200] + [1410] * 7, *FASTEST[1:]]], FASTEST)
    assert beside.time_seconds < beside.energy_joules


def test_options_without_errors_have_the_usual_noise() -> None:
    stated, usual = (
        difference_errors(problem(exact_zero, errors=errors), [SLOWER], FASTEST)[0] for errors in (True, False)
    )
    # 1 % and 0.2 %.
    assert stated.energy_joules / usual.energy_joules == pytest.approx(5, rel=0.1)
