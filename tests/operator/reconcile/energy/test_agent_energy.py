"""The energy of an attempt from agents' reports: when it counts, and how long it is awaited."""

import dataclasses
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import START, pod_energy, report
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.training_recurrence import Attribution, EnergySource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Failure, Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.agent_energy import agent_energy
from wattloop_operator.reconcile.energy.attempt_usage import usage_at_end, usage_of
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.next_actions import next_actions

TIMEOUT_SECONDS = 10


@pytest.fixture
def backend() -> ModelBackend:
    return ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=TIMEOUT_SECONDS)


def started(backend: ModelBackend) -> str:
    name = backend.start_attempt()
    backend.advance(20)
    return name


def reached(backend: ModelBackend, name: str, **fields: Any) -> None:
    backend.report(name, **{"sequence": 1, "epoch": 5, "metric": 0.95, "finished": True, **fields})
    backend.end_workload(name)


def ended(backend: ModelBackend, name: str) -> TrainingAttempt:
    recurrence = backend.recurrences[name]
    assert recurrence.status.result is not None
    return recurrence


def waits(backend: ModelBackend, name: str) -> bool:
    return backend.recurrences[name].status.result is None


def test_the_agents_energy_counts_and_the_processes_energy_is_shown_beside_it(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name)
    backend.report_energy(name, pod_energy())
    backend.reconcile()
    usage = ended(backend, name).status.usage
    assert (usage.gpu_energy_joules, usage.duration_seconds, usage.devices) == (1200, 12, 1)
    assert (usage.energy_source, usage.attribution) == (EnergySource.AGENT, Attribution.EXCLUSIVE)
    assert (usage.uncertainty_joules, usage.coverage_percent) == (3, 100)
    (agrees,) = [each for each in ended(backend, name).status.conditions if each.type == "EnergyAgrees"]
    assert agrees.message == "the processes counted 1000.0 J, the node agents 1200.0 J"
    (record,) = backend.records.values()
    assert (record.energy_joules, record.time_seconds) == (1200.0, 12.0)
    # An epoch covers the training alone, without start-up and shutdown.
    assert (record.epoch_energy_joules, record.epoch_time_seconds) == (200.0, 2.0)


def test_the_cost_follows_from_the_agents_energy_and_time(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name)
    backend.report_energy(name, pod_energy())
    backend.reconcile()
    assert ended(backend, name).status.cost_joules == Decimal("0.5") * 1200 + Decimal("0.5") * 400 * 12


def test_the_more_accurate_source_is_used(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name)
    # Pods that ran briefly: the agent's times of their start and end are too coarse.
    backend.report_energy(name, pod_energy(900.0, seconds=11.0, uncertainty_millijoules=481_000))
    backend.reconcile()
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.gpu_energy_joules, usage.duration_seconds) == (EnergySource.PROCESS, 1000, 10)
    # At most 1381 J, and two steps of the counter.
    assert (usage.uncertainty_joules, usage.coverage_percent) == (461, Decimal("90.91"))
    assert usage.attribution is Attribution.EXCLUSIVE


def test_integrated_power_has_an_uncertainty_that_is_added_to_that_of_the_agents() -> None:
    recurrence = decide(Snapshot(job()), Attempt(0, 0, "slot", START))
    counted = report(joules=1000.0)
    integrated = dataclasses.replace(
        counted, gpus=tuple(dataclasses.replace(gpu, uncertainty_millijoules=7_000) for gpu in counted.gpus)
    )
    usages = {}
    for name, each in (("counter", counted), ("integral", integrated)):
        progress = progress_after(recurrence, each)
        alone = usage_of(progress)
        agents = agent_energy([pod_energy(900.0, 11.0, uncertainty_millijoules=481_000)], progress, 1)
        both = usage_at_end(progress, agents, started=START, until=START)
        usages[name] = (alone.uncertainty_joules, float(both.uncertainty_joules))
    assert [alone for alone, _ in usages.values()] == [None, Decimal(7)]
    assert usages["integral"][1] == usages["counter"][1] + 7


@given(
    used=st.integers(1_000, 10**7),
    missed=st.floats(0, 1),
    off=st.floats(-1, 1),
    uncertain=st.integers(0, 10**6),
    seconds=st.floats(0, 100),
)
def test_the_true_energy_is_within_the_uncertainty_of_either_source(
    used: int, missed: float, off: float, uncertain: int, seconds: float
) -> None:
    """It holds for any coverage by process and agent, if the agent's uncertainty is valid."""
    agent = max(used + round(off * uncertain), 0)
    energy = pod_energy(agent / 1000, seconds, uncertainty_millijoules=uncertain)
    recurrence = decide(Snapshot(job()), Attempt(0, 0, "slot", START))
    progress = progress_after(recurrence, report(joules=used * (1 - missed) / 1000))
    usage = usage_at_end(progress, agent_energy([energy], progress, 1), started=START, until=START)
    # A millijoule is the counters' own rounding.
    assert abs(float(usage.gpu_energy_joules) - used / 1000) <= float(usage.uncertainty_joules) + 0.002


def test_an_attempt_that_has_ended_waits_for_the_agents_final_report(backend: ModelBackend) -> None:
    name = started(backend)
    backend.report_energy(name, pod_energy(joules=1100.0, seconds=11.0, ended=False))
    reached(backend, name)
    backend.reconcile()
    assert waits(backend, name)
    assert backend.recurrences[name].status.conditions[0].reason == "EnergyAwaited"
    assert next_actions(backend.state, backend.now).wake_at == backend.now + timedelta(seconds=TIMEOUT_SECONDS)
    backend.advance(2)
    backend.report_energy(name, pod_energy())
    backend.reconcile()
    assert ended(backend, name).status.usage.gpu_energy_joules == 1200


def test_after_the_deadline_the_processes_energy_is_used(backend: ModelBackend) -> None:
    name = started(backend)
    backend.report_energy(name, pod_energy(joules=800.0, seconds=8.0, ended=False))
    backend.advance(1)
    reached(backend, name)
    backend.reconcile()
    assert waits(backend, name)
    backend.reconcile_after(TIMEOUT_SECONDS)
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.PROCESS, 1000)


@pytest.mark.parametrize(
    ("measured_seconds_ago", "source"), [(0, EnergySource.AGENT), (4, EnergySource.AGENT), (6, EnergySource.PROCESS)]
)
def test_a_measurement_after_the_end_counts_although_the_gpu_is_not_released(
    measured_seconds_ago: int, source: EnergySource, backend: ModelBackend
) -> None:
    name = started(backend)
    reached(backend, name)
    backend.advance(5)
    measured_at = backend.now - timedelta(seconds=measured_seconds_ago)
    backend.report_energy(name, pod_energy(ended=False, measured_at=measured_at))
    backend.reconcile()
    assert waits(backend, name)
    backend.reconcile_after(TIMEOUT_SECONDS)
    assert ended(backend, name).status.usage.energy_source is source


def test_without_process_reports_the_agents_energy_is_used_with_its_coverage(backend: ModelBackend) -> None:
    name = started(backend)
    backend.report_energy(name, pod_energy(joules=500.0, seconds=5.0, ended=False))
    backend.advance(1)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")
    backend.reconcile_after(TIMEOUT_SECONDS)
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.AGENT, 500)
    # 5 s of 21 s and the second of rounding.
    assert usage.coverage_percent == Decimal("22.73")


def test_a_workload_without_gpus_does_not_wait() -> None:
    backend = ModelBackend(job(), agent_report_timeout_seconds=TIMEOUT_SECONDS)
    name = started(backend)
    backend.end_attempt(name, Failure.CRASHED, "exit code 1")
    assert ended(backend, name).status.usage is None


def test_an_attempt_on_gpus_of_unknown_maximum_power_has_energy_but_no_cost_and_no_observation(
    backend: ModelBackend,
) -> None:
    for _ in range(3):
        name = started(backend)
        backend.report_energy(name, pod_energy())
        reached(backend, name, gpus=0)
        backend.reconcile()
        status = ended(backend, name).status
        assert (status.usage.energy_source, status.usage.gpu_energy_joules) == (EnergySource.AGENT, 1200)
        assert status.cost_joules is None
        backend.advance(3600)
    snapshot = backend.state
    assert len(snapshot.records) == 3
    assert job_observations.observations(snapshot.records) == ()
    learns = next(each for each in snapshot.job.status.conditions if each.type == "Learns")
    assert (learns.status, learns.reason) == (ConditionStatus.FALSE, "CostNotKnown")
    assert "nothing is learned from recurrence 2" in learns.message
    assert "it has no cost: the maximum power limit of its GPUs is not known" in learns.message
    assert {each.spec.batch_size for each in backend.recurrences.values()} == {snapshot.job.spec.batch_size.default}


def test_a_job_on_shared_gpus_has_a_condition_that_it_learns_nothing(backend: ModelBackend) -> None:
    name = started(backend)
    backend.report_energy(name, pod_energy(shared=True))
    reached(backend, name)
    backend.reconcile()
    learns = next(each for each in backend.job.status.conditions if each.type == "Learns")
    assert (learns.status, learns.reason) == (ConditionStatus.FALSE, "SharedGpus")


def test_a_job_with_a_fixed_policy_has_no_condition_about_learning() -> None:
    backend = ModelBackend(job(mode="Fixed", power={"mode": "None"}), devices=1)
    name = started(backend)
    reached(backend, name, gpus=0)
    backend.reconcile()
    assert ended(backend, name).status.cost_joules is None
    assert "Learns" not in {each.type for each in backend.job.status.conditions}


def test_without_agents_an_attempt_does_not_wait() -> None:
    backend = ModelBackend(job(), devices=1)
    name = started(backend)
    reached(backend, name)
    backend.reconcile()
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.uncertainty_joules) == (EnergySource.PROCESS, None)


def test_if_an_agent_does_not_report_a_gpu_the_processes_energy_is_used(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name, gpus=2)
    backend.report_energy(name, pod_energy())
    backend.reconcile()
    assert waits(backend, name)
    backend.reconcile_after(TIMEOUT_SECONDS)
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.devices) == (EnergySource.PROCESS, 2)


def test_the_energies_of_several_pods_and_nodes_add_up(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name, gpus=2, joules=2000.0)
    elsewhere = pod_energy(
        gpu=1, seconds=13.0, pod_uid="pod-2", node="node-2", ledger="ledger-2", start_time_seconds=5_000.0
    )
    backend.report_energy(name, pod_energy(), replace(elsewhere, time_seconds=5_013.0))
    backend.reconcile()
    usage = ended(backend, name).status.usage
    assert (usage.gpu_energy_joules, usage.duration_seconds, usage.devices) == (2400, 13, 2)
    assert usage.uncertainty_joules == 6


@pytest.mark.parametrize("same_node", [True, False])
def test_of_a_pod_and_the_one_that_replaced_it_the_times_add_up_and_the_gpus_do_not(
    same_node: bool, backend: ModelBackend
) -> None:
    """By the clock of their node, or of two nodes whose clocks differ and whose reports come some seconds late."""
    backend.end_workload(started(backend))
    first = pod_energy(600.0, start_time_seconds=100.0, time_seconds=130.0, max_power_limit_watts=400.0)
    second = replace(first, pod_uid="pod-2", gpu_uuid="GPU-1", start_time_seconds=200.0, time_seconds=240.0)
    if not same_node:
        first = replace(first, measured_at=START + timedelta(seconds=33))
        second = replace(second, ledger="ledger-2", node="node-2", measured_at=START + timedelta(seconds=71))
    agents = agent_energy([first, second], Progress(), 1)
    assert (agents.duration_seconds, agents.devices, agents.max_power_limit_watts) == (
        70.0 if same_node else 68.0, 1, 400,
    )  # fmt: skip
    beside = replace(second, start_time_seconds=101.0, time_seconds=131.0, measured_at=START + timedelta(seconds=34))
    agents = agent_energy([first, beside], Progress(), 1)
    assert (agents.duration_seconds, agents.devices, agents.max_power_limit_watts) == (31.0, 2, 800)


@pytest.mark.parametrize("covered", [True, False])
def test_a_recurrence_on_a_shared_gpu_gives_no_observation(covered: bool, backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name)
    backend.report_energy(name, pod_energy(shared=True, ended=covered, seconds=9.0))
    if not covered:
        backend.advance(-1)
        backend.report_energy(name, pod_energy(shared=True, ended=False))
        backend.advance(1 + TIMEOUT_SECONDS)
    backend.reconcile()
    usage = ended(backend, name).status.usage
    assert usage.attribution is Attribution.SHARED
    assert usage.energy_source is (EnergySource.AGENT if covered else EnergySource.PROCESS)
    assert job_observations.observations(tuple(backend.records.values())) == ()


def agrees(backend: ModelBackend, name: str) -> tuple[ConditionStatus, str] | None:
    conditions = ended(backend, name).status.conditions
    return next(((each.status, each.message) for each in conditions if each.type == "EnergyAgrees"), None)


@pytest.mark.parametrize(
    ("joules", "seconds", "difference"),
    [
        (1200.0, 12.0, ""),
        (1000.0, 10.0, ""),
        # At most two seconds more at 400 W, and the uncertainty of both.
        (1800.0 + 80.0, 12.0, ""),
        (1800.0 + 90.0, 12.0, "the process counted 1000.0 J, its agent 1890.0 J, with an uncertainty of 83.0 J"),
        (920.0, 10.0, ""),
        (910.0, 12.0, "the process counted 1000.0 J, its agent 910.0 J, with an uncertainty of 83.0 J"),
    ],
)
def test_a_condition_shows_energies_that_cannot_both_be_valid(
    joules: float, seconds: float, difference: str, backend: ModelBackend
) -> None:
    name = started(backend)
    reached(backend, name)
    backend.report_energy(name, pod_energy(joules, seconds))
    backend.reconcile()
    both = f"the processes counted 1000.0 J, the node agents {joules} J"
    assert agrees(backend, name) == (
        (ConditionStatus.FALSE, f"GPU GPU-0: {difference}") if difference else (ConditionStatus.TRUE, both)
    )


def test_energies_of_shared_gpus_are_not_compared(backend: ModelBackend) -> None:
    name = started(backend)
    reached(backend, name)
    backend.report_energy(name, pod_energy(joules=100.0, shared=True))
    backend.reconcile()
    assert agrees(backend, name) is None


def test_an_attempt_that_ends_at_its_deadline_is_covered_up_to_then() -> None:
    backend = ModelBackend(job(activeDeadlineSeconds=600), devices=1, agent_report_timeout_seconds=TIMEOUT_SECONDS)
    name = started(backend)
    backend.report(name, sequence=1, epoch=7, metric=0.4)
    backend.advance(590)
    backend.report_energy(name, pod_energy(joules=9000.0, seconds=600.0, ended=False))
    backend.reconcile_after(1)
    usage = ended(backend, name).status.usage
    assert (usage.energy_source, usage.gpu_energy_joules) == (EnergySource.AGENT, 9000)


ENERGIES = st.lists(
    st.builds(
        pod_energy,
        joules=st.floats(0, 1e6),
        seconds=st.floats(0, 1e6),
        gpu=st.integers(0, 3),
        ended=st.booleans(),
        shared=st.booleans(),
        ledger=st.sampled_from(["a", "b"]),
        uncertainty_millijoules=st.integers(0, 10**6),
    ),
    max_size=5,
)


@given(ENERGIES, st.booleans(), st.integers(0, 4), st.integers(-5, 5))
def test_the_usage_of_any_reports_can_be_written(
    energies: list[PodEnergy], reports: bool, devices: int, late: int
) -> None:
    recurrence = decide(Snapshot(job()), Attempt(0, 0, "slot", START))
    progress = progress_after(recurrence, report()) if reports else Progress()
    agents = agent_energy(energies, progress, devices)
    until = START + timedelta(seconds=late)
    usage = usage_at_end(progress, agents, started=datetime(2026, 3, 1, 11, tzinfo=UTC), until=until)
    assert (usage is None) == (not energies and not reports)
    if usage is not None:
        assert type(usage).from_wire(usage.to_wire()) == usage
        assert usage.coverage_percent is None or 0 <= usage.coverage_percent <= 100
        assert usage.energy_source is EnergySource.PROCESS or usage.gpu_energy_joules == sum(
            Decimal(each.energy_millijoules) / 1000 for each in energies
        )


def test_a_workload_deleted_while_energy_is_awaited_is_not_started_again(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.end_attempt(name, Failure.CRASHED, "it ended before it was observed to run")
    assert waits(backend, name)
    del backend.workloads[name]
    backend.reconcile()
    assert ended(backend, name).status.result is not None
    assert backend.started[name] == 1
