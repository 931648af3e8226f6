"""What a plan saves and loses against maximum clocks, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import NEW_STATE
from wattloop_operator.reconcile.pipeline.saving import (
    Measured,
    saving_error_percent,
    saving_percent,
    slowdown_error_percent,
    slowdown_percent,
)
from wattloop_operator.reconcile.pipeline.state import FrontierPoint, IssuedDirective, PipelineFrontier, PipelineState

POINTS = tuple(FrontierPoint(time, energy, ((1,), (1,))) for time, energy in ((1.2, 80.0), (1.0, 90.0)))
HIGHEST = FrontierPoint(1.0, 120.0, ((1,), (1,)))


def planned(point: int, straggler_point: int | None = None) -> PipelineState:
    frontier = PipelineFrontier("d", POINTS, HIGHEST, blocking_watts=10.0)
    directive = IssuedDirective(1, "Plan", profile_digest="d", point=point, straggler_point=straggler_point)
    return replace(NEW_STATE, frontier=frontier, directive=directive)


@pytest.mark.parametrize(
    ("point", "straggler_point", "found", "saving", "slowdown"),
    [
        (1, None, None, 25.0, 0.0),
        (0, None, None, 100 / 3, 20.0),
        (1, None, Measured(1.0, 90.0, 5), 25.0, 0.0),
        # 30 J and 0.5 s beyond the plan are beyond maximum clocks, too.
        (1, None, Measured(1.5, 120.0, 5), 20.0, 0.0),
        (0, None, Measured(1.6, None, 5), 100 / 3, 0.2 / 1.4 * 100),
        # At maximum clocks, both ranks wait for 0.2 s.
        (1, 0, None, 100 * (124 - 80) / 124, None),
    ],
)
def test_saving_and_slowdown_are_against_maximum_clocks(
    point: int, straggler_point: int | None, found: Measured | None, saving: float, slowdown: float | None
) -> None:
    state = planned(point, straggler_point)
    assert saving_percent(state, found) == pytest.approx(saving)
    assert slowdown_percent(state, found) == (None if slowdown is None else pytest.approx(slowdown))


def with_errors(state: PipelineState, seconds: float, joules: float) -> PipelineState:
    assert state.frontier is not None
    points = [
        replace(point, slowdown_error_seconds=seconds, saving_error_joules=joules) for point in state.frontier.points
    ]
    return replace(state, frontier=replace(state.frontier, points=tuple(points)))


@pytest.mark.parametrize(
    ("point", "straggler_point", "found", "saving_error", "slowdown_error"),
    [
        # Of 120 J at maximum clocks, 30 ± 3 J are saved.
        (1, None, None, 100 * 90 * 3 / 120**2, 2.0),
        (1, None, Measured(1.0, 90.0, 5, 6.0), 100 * 90 * 3 / 120**2, 2.0),
        # Of 30 J more on both sides, they are a smaller part, which the error of the 120 J changes, too.
        (1, None, Measured(1.25, 120.0, 5, 6.0), 100 * math.hypot(120 * 3, 30 * 6) / 150**2, 1.6),
        (1, None, Measured(1.25, 120.0, 5), None, 1.6),
        # Waiting for the straggler has the error of the time.
        (1, 0, None, 100 * 80 * math.hypot(3, 2 * 10 * 0.02) / 124**2, None),
    ],
)
def test_the_errors_of_profile_and_realised_energy_pass_on_to_the_saving(
    point: int,
    straggler_point: int | None,
    found: Measured | None,
    saving_error: float | None,
    slowdown_error: float | None,
) -> None:
    state = with_errors(planned(point, straggler_point), 0.02, 3.0)
    assert saving_error_percent(state, found) == (None if saving_error is None else pytest.approx(saving_error))
    assert slowdown_error_percent(state, found) == (None if slowdown_error is None else pytest.approx(slowdown_error))


def test_without_errors_of_the_profile_none_is_stated() -> None:
    found = Measured(1.0, 90.0, 5, 1.0)
    assert saving_percent(planned(1), found) is not None
    assert saving_error_percent(planned(1), found) is None
    assert slowdown_error_percent(planned(1), found) is None
