"""An agent's report after the outcome changes usage, cost and totals, but nothing else."""

from dataclasses import replace

import pytest

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import pod_energy
from wattloop_operator.api.training_recurrence import EnergySource, TrainingRecurrenceStatus
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Failure, WorkloadPod
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.next_actions import next_actions

TIMEOUT_SECONDS = 10


@pytest.fixture
def backend() -> ModelBackend:
    return ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture
def unreported(backend: ModelBackend) -> str:
    """An attempt that reported 1000 J and its target, without a report of its agent."""
    return run(backend, reports=True)


def run(backend: ModelBackend, *, reports: bool) -> str:
    name = backend.start_attempt()
    backend.advance(20)
    if reports:
        backend.report(name, epoch=5, metric=0.95, finished=True)
    backend.end_attempt(name, None if reports else Failure.DISRUPTED, "its node went away")
    backend.reconcile_after(TIMEOUT_SECONDS)
    return name


def status_of(backend: ModelBackend, name: str) -> TrainingRecurrenceStatus:
    return backend.recurrences[name].status


def report_later(backend: ModelBackend, name: str, *energies: PodEnergy) -> None:
    backend.advance(60)
    backend.report_energy(name, *energies)
    backend.reconcile()


def total_joules(backend: ModelBackend) -> float:
    return float(backend.job.status.totals.gpu_energy_joules or 0)


def test_a_late_final_report_updates_usage_cost_and_totals(backend: ModelBackend, unreported: str) -> None:
    before = status_of(backend, unreported)
    assert (before.usage.energy_source, before.usage.uncertainty_joules) == (EnergySource.PROCESS, None)
    assert total_joules(backend) == 1000
    report_later(backend, unreported, pod_energy())
    after = status_of(backend, unreported)
    assert (after.usage.energy_source, after.usage.gpu_energy_joules) == (EnergySource.AGENT, 1200)
    assert after.usage.uncertainty_joules == 3
    assert after.cost_joules is not None
    assert after.cost_joules == 0.5 * 1200 + 0.5 * 400 * 12
    assert total_joules(backend) == 1200
    assert backend.job.status.recent_recurrences[-1].gpu_energy_joules == 1200
    assert [each.type for each in after.conditions].count("EnergyAgrees") == 1


def test_a_late_report_keeps_outcome_and_observation(backend: ModelBackend, unreported: str) -> None:
    before, records = status_of(backend, unreported), dict(backend.records)
    arms = backend.job.status.arms
    report_later(backend, unreported, pod_energy())
    after = status_of(backend, unreported)
    assert (after.result, after.completion_time) == (before.result, before.completion_time)
    assert after.message == before.message
    assert after.usage != before.usage
    assert backend.records == records
    assert backend.job.status.arms == arms
    assert backend.started[unreported] == 1


def test_a_late_report_of_an_attempt_without_usage_adds_energy_but_no_observation(backend: ModelBackend) -> None:
    name = run(backend, reports=False)
    assert status_of(backend, name).usage is None
    report_later(backend, name, pod_energy())
    usage = status_of(backend, name).usage
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.AGENT, 1200)
    assert total_joules(backend) == 1200
    assert job_observations.observations(tuple(backend.records.values())) == ()
    (record,) = [each for each in backend.records.values() if each.recurrence_name == name]
    assert (record.energy_joules, record.time_seconds, record.epoch_energy_joules) == (0.0, 0.0, None)


def test_the_same_late_report_is_written_once(backend: ModelBackend, unreported: str) -> None:
    report_later(backend, unreported, pod_energy())
    version = backend.recurrences[unreported].metadata.resource_version
    report_later(backend, unreported, pod_energy())
    assert next_actions(backend.state, backend.now).actions == ()
    assert backend.recurrences[unreported].metadata.resource_version == version


@pytest.mark.parametrize("partial", [pod_energy(ended=False), pod_energy(gpu=1)])
def test_a_late_report_that_is_not_final_or_not_of_all_gpus_changes_nothing(
    partial: PodEnergy, backend: ModelBackend, unreported: str
) -> None:
    before = status_of(backend, unreported)
    report_later(backend, unreported, partial)
    assert status_of(backend, unreported) == before
    assert backend.late_usages == {}


def test_a_pod_that_continues_after_the_outcome_counts_until_its_end(backend: ModelBackend, unreported: str) -> None:
    report_later(backend, unreported, pod_energy())
    report_later(backend, unreported, pod_energy(joules=5000.0, seconds=60.0))
    assert status_of(backend, unreported).usage.gpu_energy_joules == 5000
    (record,) = [each for each in backend.records.values() if each.recurrence_name == unreported]
    assert record.energy_joules == 1000
    assert total_joules(backend) == 5000


def test_totals_include_the_late_usage_of_a_deleted_recurrence(backend: ModelBackend, unreported: str) -> None:
    report_later(backend, unreported, pod_energy())
    backend.delete(unreported)
    backend.reconcile()
    assert total_joules(backend) == 1200


def test_a_lost_store_is_restored_with_the_usage_that_is_known_then(backend: ModelBackend, unreported: str) -> None:
    report_later(backend, unreported, pod_energy())
    backend.lose_database()
    backend.reconcile()
    (record,) = [each for each in backend.records.values() if each.recurrence_name == unreported]
    assert (record.energy_joules, backend.late_usages) == (1200, {})
    assert total_joules(backend) == 1200


def test_the_status_keeps_all_pods_of_an_attempt(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    for uid in ("first", "second"):
        pod = WorkloadPod(f"pod-{uid}", "node-1", uid=uid)
        backend.run_workload(name)
        backend.workloads[name] = replace(backend.workloads[name], pods=(pod,))
        backend.reconcile()
    assert [pod.uid for pod in status_of(backend, name).pods] == ["first", "second"]
    backend.end_attempt(name, Failure.CRASHED, "exit code 1")
    backend.reconcile_after(TIMEOUT_SECONDS)
    assert status_of(backend, name).result is not None
    assert [pod.uid for pod in status_of(backend, name).pods] == ["first", "second"]
