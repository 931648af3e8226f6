"""An agent's word that comes after the outcome: usage, cost and sums follow it, outcome and learning stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.backends.model_backend import KEY, ModelBackend, job, told
from wattloop_operator.api.training_recurrence import EnergySource, PodReference, TrainingRecurrenceStatus
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning import observations
from wattloop_operator.reconcile.next_actions import next_actions

Reconcile = Callable[[ModelBackend], None]
PATIENCE = 10


@pytest.fixture
def backend() -> ModelBackend:
    return ModelBackend(job(power={"limit": {"mode": "None"}}), devices=1, agent_patience_seconds=PATIENCE)


@pytest.fixture
def unheard(backend: ModelBackend, settled: Reconcile) -> str:
    """An attempt that reached its target after 1000 J by its own word, and whose agent was silent."""
    return run(backend, settled, reports=True)


def run(backend: ModelBackend, settled: Reconcile, *, reports: bool) -> str:
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    settled(backend)
    backend.pass_seconds(20)
    if reports:
        backend.report(name, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name, None if reports else Failure.DISRUPTED, "its node went away")
    settled(backend)
    backend.pass_seconds(PATIENCE)
    settled(backend)
    return name


def status_of(backend: ModelBackend, name: str) -> TrainingRecurrenceStatus:
    return backend.recurrences[name].status


def later(backend: ModelBackend, settled: Reconcile, name: str, *words: PodEnergy) -> None:
    backend.pass_seconds(60)
    backend.agents_tell(name, *words)
    settled(backend)


def total_joules(backend: ModelBackend) -> float:
    assert backend.job.status.totals is not None
    return float(backend.job.status.totals.gpu_energy_joules)


def test_a_late_last_word_amends_usage_cost_and_sums(backend: ModelBackend, settled: Reconcile, unheard: str) -> None:
    before = status_of(backend, unheard)
    assert before.usage is not None
    assert (before.usage.energy_source, before.usage.uncertainty_joules) == (EnergySource.PROCESS, None)
    assert total_joules(backend) == 1000
    later(backend, settled, unheard, told())
    after = status_of(backend, unheard)
    assert after.usage is not None
    assert (after.usage.energy_source, after.usage.gpu_energy_joules, after.usage.uncertainty_joules) == (
        EnergySource.AGENT,
        1200,
        3,
    )
    assert after.cost is not None
    assert after.cost.joules == 0.5 * 1200 + 0.5 * 400 * 12
    assert total_joules(backend) == 1200
    assert backend.job.status.recent_recurrences[-1].gpu_energy_joules == 1200
    assert [each.type for each in after.conditions].count("EnergyAgrees") == 1


def test_outcome_and_observation_stand(backend: ModelBackend, settled: Reconcile, unheard: str) -> None:
    before, records = status_of(backend, unheard), dict(backend.records)
    arms = backend.job.status.arms
    later(backend, settled, unheard, told())
    after = status_of(backend, unheard)
    assert (after.result, after.completion_time, after.message) == (
        before.result,
        before.completion_time,
        before.message,
    )
    assert after.usage_at_outcome == before.usage
    assert backend.records == records
    assert backend.job.status.arms == arms
    assert backend.started[unheard] == 1


def test_an_attempt_of_which_nothing_was_known_has_energy_then_and_still_teaches_nothing(
    backend: ModelBackend, settled: Reconcile
) -> None:
    name = run(backend, settled, reports=False)
    assert status_of(backend, name).usage is None
    later(backend, settled, name, told())
    usage = status_of(backend, name).usage
    assert usage is not None
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.AGENT, 1200)
    assert total_joules(backend) == 1200
    assert observations.observations(tuple(backend.records.values())) == ()
    backend.lose_database()
    settled(backend)
    (record,) = [each for each in backend.records.values() if each.recurrence_name == name]
    assert (record.energy_joules, record.time_seconds, record.epoch_energy_joules) == (0.0, 0.0, None)
    assert total_joules(backend) == 1200


def test_told_twice_or_of_less_it_is_written_once(backend: ModelBackend, settled: Reconcile, unheard: str) -> None:
    later(backend, settled, unheard, told())
    version = backend.recurrences[unheard].metadata.resource_version
    later(backend, settled, unheard, told())
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert next_actions(snapshot, backend.now).actions == ()
    assert backend.recurrences[unheard].metadata.resource_version == version


@pytest.mark.parametrize("partial", [told(ended=False), told(gpu=1)])
def test_a_word_that_is_not_the_last_or_not_of_all_gpus_is_no_amendment(
    partial: PodEnergy, backend: ModelBackend, settled: Reconcile, unheard: str
) -> None:
    before = status_of(backend, unheard)
    later(backend, settled, unheard, partial)
    assert status_of(backend, unheard) == before
    assert backend.late_usages == {}


def test_a_pod_that_went_on_after_the_outcome_is_counted_to_its_end(
    backend: ModelBackend, settled: Reconcile, unheard: str
) -> None:
    later(backend, settled, unheard, told())
    later(backend, settled, unheard, told(joules=5000.0, seconds=60.0))
    usage = status_of(backend, unheard).usage
    at_outcome = status_of(backend, unheard).usage_at_outcome
    assert usage is not None
    assert at_outcome is not None
    assert (usage.gpu_energy_joules, at_outcome.gpu_energy_joules) == (5000, 1000)
    assert total_joules(backend) == 5000


def test_sums_keep_an_amendment_when_its_object_is_gone(
    backend: ModelBackend, settled: Reconcile, unheard: str
) -> None:
    later(backend, settled, unheard, told())
    backend.delete_by_hand(unheard)
    settled(backend)
    assert total_joules(backend) == 1200


def test_what_was_learned_is_the_same_when_the_store_is_lost(
    backend: ModelBackend, settled: Reconcile, unheard: str
) -> None:
    later(backend, settled, unheard, told())
    records, late_usages = dict(backend.records), dict(backend.late_usages)
    backend.lose_database()
    settled(backend)
    assert (backend.records, backend.late_usages) == (records, late_usages)


def test_pods_that_were_seen_are_written_down_and_stay(backend: ModelBackend, settled: Reconcile) -> None:
    settled(backend)
    name = backend.running[0]
    for uid in ("first", "second"):
        pod = PodReference(uid=uid, node="node-1")
        backend.run_workload(name)
        backend.workloads[name] = replace(backend.workloads[name], pods=(pod,))
        settled(backend)
    assert [pod.uid for pod in status_of(backend, name).pods] == ["first", "second"]
    backend.end_workload(name, Failure.CRASHED, "exit code 1")
    settled(backend)
    backend.pass_seconds(PATIENCE)
    settled(backend)
    assert status_of(backend, name).result is not None
    assert [pod.uid for pod in status_of(backend, name).pods] == ["first", "second"]
