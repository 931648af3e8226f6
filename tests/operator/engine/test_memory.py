"""Two memories, the objects and the store: either leads to the same decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_world import KEY, ModelWorld, job

from wattloop.messages import LimitMeasurement
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.engine.decide import Attempt, decide
from wattloop_operator.loop.settle import settle
from wattloop_planner.bandit.policy import NoArmLeftError

Settle = Callable[[ModelWorld], None]
PROFILE = (LimitMeasurement(400.0, 120.1, 1.0, 0.1), LimitMeasurement(300.0, 80.3, 1.2, 0.1))


def ran(world: ModelWorld, runs: list[tuple[bool, int]]) -> None:
    """Runs recurrences one after another; each reaches the target or not, at its epochs."""
    for reached, epochs in runs:
        settle(world, KEY, world.clock)
        for name in world.running:
            world.run_workload(name)
            world.report(
                name,
                epoch=epochs,
                metric=0.95 if reached else 0.5,
                joules=epochs * 333.333333 / 7,
                seconds=epochs * 1.1 / 3,
                finished=True,
                profile=PROFILE,
            )
            world.end_workload(name)
        settle(world, KEY, world.clock)
        world.pass_seconds(3600)


def decided_or_refused(world: ModelWorld) -> TrainingRecurrence | str:
    try:
        return next_decision(world)
    except NoArmLeftError as error:
        return str(error)


def next_decision(world: ModelWorld) -> TrainingRecurrence:
    snapshot = world.snapshot(KEY)
    assert snapshot is not None
    decided = decide(snapshot, Attempt(99, 0, "next", world.now))
    # The digest covers all that the policy saw, to the last bit.
    assert decided.spec.decision.digest
    return decided


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(st.tuples(st.booleans(), st.integers(1, 50)), min_size=1, max_size=8),
    policy=st.sampled_from([{"thompsonSampling": {}}, {"zeus": {}}]),
)
def test_losing_the_database_or_the_objects_changes_no_decision(
    runs: list[tuple[bool, int]], policy: dict[str, Any]
) -> None:
    world = ModelWorld(
        job(policy=policy, retryPolicy={"limit": 0}, successfulHistoryLimit=1000, failedHistoryLimit=1000)
    )
    ran(world, runs)
    decided = decided_or_refused(world)
    records, profiles = dict(world.records), dict(world.profiles)
    world.lose_database()
    assert decided_or_refused(world) == decided
    world.records, world.profiles = records, profiles
    world.recurrences.clear()
    assert decided_or_refused(world) == decided


def test_a_lost_database_is_filled_again_from_the_objects(world: ModelWorld, settled: Settle) -> None:
    ran(world, [(True, 5), (True, 6)])
    records, profiles = dict(world.records), dict(world.profiles)
    assert len(records) == 2
    assert len(profiles) >= 1
    world.lose_database()
    settled(world)
    assert {key: world.records[key] for key in records} == records
    assert {key: world.profiles[key] for key in profiles} == profiles


def test_history_beyond_its_limits_is_deleted_and_still_counts(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(successfulHistoryLimit=2, failedHistoryLimit=1, retryPolicy={"limit": 0})
    ran(world, [(True, 5), (False, 50), (True, 6), (False, 50), (True, 7), (True, 8)])
    kept = sorted(each.spec.index for each in world.recurrences.values() if each.status.result is not None)
    assert kept == [3, 4, 5]
    assert len(world.records) == 6
    assert (world.job.status.counts.reached, world.job.status.counts.failed) == (4, 2)


def test_a_profiled_batch_size_is_held_at_its_cheapest_limit_from_then_on(world: ModelWorld) -> None:
    ran(world, [(True, 5)])
    first = next(each for each in world.recurrences.values() if each.spec.index == 0)
    assert (first.spec.power_limit_watts, first.spec.profile_power_limits) == (None, True)
    world.change_spec(policy={"fixed": {}})
    decided = next_decision(world)
    # At 400 W: (120.1 + 400·1.0)/2 = 260 J; at 300 W: (80.3 + 400·1.2)/2 = 280 J, each for a tenth of an epoch.
    assert (decided.spec.power_limit_watts, decided.spec.profile_power_limits) == (400, False)
    world.change_spec(
        policy={"fixed": {}}, objective={**world.job.to_wire()["spec"]["objective"], "energyWeightPercent": 100}
    )
    assert next_decision(world).spec.power_limit_watts == 300


@pytest.mark.parametrize(("scaling", "scale"), [("None", "1"), ("Linear", "1"), ("SquareRoot", "1")])
def test_the_default_batch_size_keeps_the_learning_rate(
    world_with: Callable[..., ModelWorld], scaling: str, scale: str
) -> None:
    batch_size = {"default": 64, "candidates": [16, 64], "learningRateScaling": scaling}
    assert str(next_decision(world_with(batchSize=batch_size)).spec.learning_rate_scale) == scale
