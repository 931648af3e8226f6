"""A clock that is set ahead or back by a day: what is started, and what is not started twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from model_world import ModelWorld

DAY = 86_400
Settle = Callable[[ModelWorld], None]
TRIGGERS: dict[str, dict[str, Any]] = {
    "cron": {"cron": {"schedule": "0 * * * *"}},
    "interval": {"interval": {"seconds": 3600}},
    "continuous": {"continuous": {"minGapSeconds": 3600}},
}


def run(world: ModelWorld, settled: Settle) -> None:
    """The recurrence that was started reaches its target."""
    (name,) = world.running
    world.run_workload(name)
    world.report(name, metric=0.95, finished=True)
    world.end_workload(name)
    settled(world)


@pytest.fixture(params=TRIGGERS.values(), ids=TRIGGERS.keys())
def world(request: pytest.FixtureRequest, world_with: Callable[..., ModelWorld], settled: Settle) -> ModelWorld:
    """A job that runs every hour and has run once."""
    made = world_with(trigger=request.param)
    settled(made)
    made.pass_seconds(3600)
    settled(made)
    while made.running:
        run(made, settled)
    return made


def starts_nothing_again_before_its_time(world: ModelWorld, settled: Settle, known: set[str]) -> None:
    """Of a job that ran a day ahead of the clock."""
    for _ in range(23):
        world.pass_seconds(3600)
        settled(world)
    assert set(world.recurrences) == known
    world.pass_seconds(2 * 3600)
    settled(world)
    assert len(world.running) == 1


def test_set_back_it_starts_nothing_again_and_goes_on_where_it_was(world: ModelWorld, settled: Settle) -> None:
    before = set(world.recurrences)
    world.pass_seconds(-DAY)
    starts_nothing_again_before_its_time(world, settled, before)


def test_set_ahead_it_starts_one_run_and_counts_the_others_as_missed(world: ModelWorld, settled: Settle) -> None:
    before = len(world.recurrences)
    world.pass_seconds(DAY)
    settled(world)
    assert len(world.recurrences) == before + 1
    # A continuous job has no calendar that it could miss.
    assert world.job.status.counts.missed == (0 if world.job.spec.trigger.continuous else 23)


def test_set_ahead_and_back_again_it_goes_on_when_the_time_has_caught_up(world: ModelWorld, settled: Settle) -> None:
    world.pass_seconds(DAY)
    settled(world)
    run(world, settled)
    ahead = set(world.recurrences)
    world.pass_seconds(-DAY)
    starts_nothing_again_before_its_time(world, settled, ahead)


@pytest.mark.parametrize(
    "trigger", [{"once": {}}, {"continuous": {"minGapSeconds": 60}}, {"interval": {"seconds": 60}}]
)
def test_behind_the_api_servers_clock_a_new_job_starts_all_the_same(
    trigger: dict[str, Any], world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(trigger=trigger)
    world.pass_seconds(-DAY)
    settled(world)
    run(world, settled)
    assert len(world.recurrences) == 1
