"""What a plan would save and lose against maximum clocks by the profile, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import NEW_STATE
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    FrontierPoint,
    IssuedDirective,
    PipelineFrontier,
    PipelineState,
)
from wattloop_operator.reconcile.pipeline.saving import (
    planned_saving_error_percent,
    planned_saving_percent,
    planned_slowdown_error_percent,
    planned_slowdown_percent,
)

POINTS = tuple(FrontierPoint(time, energy, ((1,), (1,))) for time, energy in ((1.2, 80.0), (1.0, 90.0)))
HIGHEST = FrontierPoint(1.0, 120.0, ((1,), (1,)))


def planned(point: int, straggler_point: int | None = None) -> PipelineState:
    frontier = PipelineFrontier("d", POINTS, HIGHEST, blocking_watts=10.0)
    directive = IssuedDirective(1, "Plan", profile_digest="d", point=point, straggler_point=straggler_point)
    return replace(NEW_STATE, frontier=frontier, directive=directive)


@pytest.mark.parametrize(
    ("point", "straggler_point", "saving", "slowdown"),
    [
        (1, None, 25.0, 0.0),
        (0, None, 100 / 3, 20.0),
        # At maximum clocks, both ranks wait for 0.2 s.
        (1, 0, 100 * (124 - 80) / 124, None),
    ],
)
def test_the_planned_saving_and_slowdown_are_against_maximum_clocks(
    point: int, straggler_point: int | None, saving: float, slowdown: float | None
) -> None:
    state = planned(point, straggler_point)
    assert planned_saving_percent(state) == pytest.approx(saving)
    assert planned_slowdown_percent(state) == (None if slowdown is None else pytest.approx(slowdown))


def with_errors(state: PipelineState, seconds: float, joules: float) -> PipelineState:
    assert state.frontier is not None
    points = [
        replace(point, slowdown_error_seconds=seconds, saving_error_joules=joules) for point in state.frontier.points
    ]
    return replace(state, frontier=replace(state.frontier, points=tuple(points)))


@pytest.mark.parametrize(
    ("point", "straggler_point", "saving_error", "slowdown_error"),
    [
        # Of 120 J at maximum clocks, 30 ± 3 J are saved.
        (1, None, 100 * 90 * 3 / 120**2, 2.0),
        # Waiting for the straggler has the error of the time.
        (1, 0, 100 * 80 * math.hypot(3, 2 * 10 * 0.02) / 124**2, None),
    ],
)
def test_the_errors_of_the_profile_pass_on_to_the_planned_saving(
    point: int, straggler_point: int | None, saving_error: float, slowdown_error: float | None
) -> None:
    state = with_errors(planned(point, straggler_point), 0.02, 3.0)
    assert planned_saving_error_percent(state) == pytest.approx(saving_error)
    assert planned_slowdown_error_percent(state) == (None if slowdown_error is None else pytest.approx(slowdown_error))


def test_without_errors_of_the_profile_none_is_stated() -> None:
    assert planned_saving_percent(planned(1)) is not None
    assert planned_saving_error_percent(planned(1)) is None
    assert planned_slowdown_error_percent(planned(1)) is None
