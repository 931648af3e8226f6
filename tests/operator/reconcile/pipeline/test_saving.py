"""What a plan would save and lose against maximum clocks by the profile."""

from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import NEW_STATE
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    FrontierPoint,
    IssuedDirective,
    PipelineFrontier,
)
from wattloop_operator.reconcile.pipeline.saving import planned_saving_percent, planned_slowdown_percent

POINTS = tuple(FrontierPoint(time, energy, ((1,), (1,))) for time, energy in ((1.2, 80.0), (1.0, 90.0)))
HIGHEST = FrontierPoint(1.0, 120.0, ((1,), (1,)))


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
    frontier = PipelineFrontier("d", POINTS, HIGHEST, blocking_watts=10.0)
    directive = IssuedDirective(1, "Plan", profile_digest="d", point=point, straggler_point=straggler_point)
    state = replace(NEW_STATE, frontier=frontier, directive=directive)
    assert planned_saving_percent(state) == pytest.approx(saving)
    assert planned_slowdown_percent(state) == (None if slowdown is None else pytest.approx(slowdown))
