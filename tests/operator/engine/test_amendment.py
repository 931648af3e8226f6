"""An agent's word that comes after the outcome: usage, cost and sums follow it, outcome and learning stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from model_world import KEY, ModelWorld, job, told

from wattloop_operator.api.training_recurrence import EnergySource, PodReference, TrainingRecurrenceStatus
from wattloop_operator.engine import memory
from wattloop_operator.engine.snapshot import Failure
from wattloop_operator.engine.turn import next_turn
from wattloop_operator.store.records import PodEnergy

Settle = Callable[[ModelWorld], None]
PATIENCE = 10


@pytest.fixture
def world() -> ModelWorld:
    return ModelWorld(job(power={"limit": {"mode": "None"}}), devices=1, agent_patience_seconds=PATIENCE)


@pytest.fixture
def unheard(world: ModelWorld, settled: Settle) -> str:
    """An attempt that reached its target after 1000 J by its own word, and whose agent was silent."""
    return run(world, settled, reports=True)


def run(world: ModelWorld, settled: Settle, *, reports: bool) -> str:
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    settled(world)
    world.pass_seconds(20)
    if reports:
        world.report(name, epoch=5, metric=0.95, finished=True)
    world.end_workload(name, None if reports else Failure.DISRUPTED, "its node went away")
    settled(world)
    world.pass_seconds(PATIENCE)
    settled(world)
    return name


def status_of(world: ModelWorld, name: str) -> TrainingRecurrenceStatus:
    return world.recurrences[name].status


def later(world: ModelWorld, settled: Settle, name: str, *words: PodEnergy) -> None:
    world.pass_seconds(60)
    world.agents_tell(name, *words)
    settled(world)


def total_joules(world: ModelWorld) -> float:
    assert world.job.status.totals is not None
    return float(world.job.status.totals.gpu_energy_joules)


def test_a_late_last_word_amends_usage_cost_and_sums(world: ModelWorld, settled: Settle, unheard: str) -> None:
    before = status_of(world, unheard)
    assert before.usage is not None
    assert (before.usage.energy_source, before.usage.uncertainty_joules) == (EnergySource.PROCESS, None)
    assert total_joules(world) == 1000
    later(world, settled, unheard, told())
    after = status_of(world, unheard)
    assert after.usage is not None
    assert (after.usage.energy_source, after.usage.gpu_energy_joules, after.usage.uncertainty_joules) == (
        EnergySource.AGENT,
        1200,
        3,
    )
    assert after.cost is not None
    assert after.cost.joules == 0.5 * 1200 + 0.5 * 400 * 12
    assert total_joules(world) == 1200
    assert world.job.status.recent_recurrences[-1].gpu_energy_joules == 1200
    assert [each.type for each in after.conditions].count("EnergyAgrees") == 1


def test_outcome_and_observation_stand(world: ModelWorld, settled: Settle, unheard: str) -> None:
    before, records = status_of(world, unheard), dict(world.records)
    arms = world.job.status.arms
    later(world, settled, unheard, told())
    after = status_of(world, unheard)
    assert (after.result, after.completion_time, after.message) == (
        before.result,
        before.completion_time,
        before.message,
    )
    assert after.usage_at_outcome == before.usage
    assert world.records == records
    assert world.job.status.arms == arms
    assert world.started[unheard] == 1


def test_an_attempt_of_which_nothing_was_known_has_energy_then_and_still_teaches_nothing(
    world: ModelWorld, settled: Settle
) -> None:
    name = run(world, settled, reports=False)
    assert status_of(world, name).usage is None
    later(world, settled, name, told())
    usage = status_of(world, name).usage
    assert usage is not None
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.AGENT, 1200)
    assert total_joules(world) == 1200
    assert memory.observations(tuple(world.records.values())) == ()
    world.lose_database()
    settled(world)
    (record,) = [each for each in world.records.values() if each.recurrence_name == name]
    assert (record.energy_joules, record.time_seconds, record.epoch_energy_joules) == (0.0, 0.0, None)
    assert total_joules(world) == 1200


def test_told_twice_or_of_less_it_is_written_once(world: ModelWorld, settled: Settle, unheard: str) -> None:
    later(world, settled, unheard, told())
    version = world.recurrences[unheard].metadata.resource_version
    later(world, settled, unheard, told())
    snapshot = world.snapshot(KEY)
    assert snapshot is not None
    assert next_turn(snapshot, world.now).actions == ()
    assert world.recurrences[unheard].metadata.resource_version == version


@pytest.mark.parametrize("partial", [told(ended=False), told(gpu=1)])
def test_a_word_that_is_not_the_last_or_not_of_all_gpus_is_no_amendment(
    partial: PodEnergy, world: ModelWorld, settled: Settle, unheard: str
) -> None:
    before = status_of(world, unheard)
    later(world, settled, unheard, partial)
    assert status_of(world, unheard) == before
    assert world.amendments == {}


def test_a_pod_that_went_on_after_the_outcome_is_counted_to_its_end(
    world: ModelWorld, settled: Settle, unheard: str
) -> None:
    later(world, settled, unheard, told())
    later(world, settled, unheard, told(joules=5000.0, seconds=60.0))
    usage = status_of(world, unheard).usage
    at_outcome = status_of(world, unheard).usage_at_outcome
    assert usage is not None
    assert at_outcome is not None
    assert (usage.gpu_energy_joules, at_outcome.gpu_energy_joules) == (5000, 1000)
    assert total_joules(world) == 5000


def test_sums_keep_an_amendment_when_its_object_is_gone(world: ModelWorld, settled: Settle, unheard: str) -> None:
    later(world, settled, unheard, told())
    world.delete_by_hand(unheard)
    settled(world)
    assert total_joules(world) == 1200


def test_what_was_learned_is_the_same_when_the_store_is_lost(world: ModelWorld, settled: Settle, unheard: str) -> None:
    later(world, settled, unheard, told())
    records, amendments = dict(world.records), dict(world.amendments)
    world.lose_database()
    settled(world)
    assert (world.records, world.amendments) == (records, amendments)


def test_pods_that_were_seen_are_written_down_and_stay(world: ModelWorld, settled: Settle) -> None:
    settled(world)
    name = world.running[0]
    for uid in ("first", "second"):
        pod = PodReference(uid=uid, node="node-1")
        world.run_workload(name)
        world.workloads[name] = replace(world.workloads[name], pods=(pod,))
        settled(world)
    assert [pod.uid for pod in status_of(world, name).pods] == ["first", "second"]
    world.end_workload(name, Failure.CRASHED, "exit code 1")
    settled(world)
    world.pass_seconds(PATIENCE)
    settled(world)
    assert status_of(world, name).result is not None
    assert [pod.uid for pod in status_of(world, name).pods] == ["first", "second"]
