"""Hung attempts: which silence ends an attempt, what does not count, and what follows."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import KilledError, ModelBackend, job
from support.backends.sample_reports import report
from wattloop.wire.training_messages import ProbeReport
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import MAX_HEARTBEATS, Progress
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadPod
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.progress_deadline import (
    MAX_INTERVAL,
    cost_percent,
    hang_message,
    hung_at,
    power_watts,
    summary_of,
    with_heartbeat,
)
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.epoch_usage import with_probes
from wattloop_operator.reconcile.energy.gpu_node_status import with_recent_power
from wattloop_operator.reconcile.learning import job_observations
from wattloop_planner.observations import Outcome

DEADLINE = 600


def backend_with_deadline(**changes: Any) -> ModelBackend:
    return ModelBackend(job(**{"progressDeadlineSeconds": DEADLINE, **changes}))


def result_of(backend: ModelBackend, name: str) -> Result | None:
    backend.reconcile()
    return backend.recurrences[name].status.result


def test_a_forbid_job_goes_on_after_a_training_that_hangs() -> None:
    backend = backend_with_deadline(retries=0)
    hung = backend.start_attempt()
    backend.report(hung, epoch=3, metric=0.5)
    backend.advance(DEADLINE - 1)
    assert result_of(backend, hung) is None
    backend.advance(1)
    assert result_of(backend, hung) is Result.HUNG
    backend.reconcile()
    assert hung not in backend.workloads
    message = backend.recurrences[hung].status.message
    assert message.startswith("batch size 64: no process reported for 600 s (progressDeadlineSeconds)")
    assert "rank 0 is silent longest, since 2026-03-01T12:00:00Z after 3 epochs" in message
    backend.reconcile_after(3600)
    (following,) = backend.running
    assert backend.recurrences[following].spec.index == 1


def test_the_operator_wakes_when_silence_alone_ends_an_attempt() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    backend.advance(100)
    backend.report(name, epoch=1, metric=0.5)
    workload, recurrence = backend.workloads[name], backend.recurrences[name]
    assert hung_at(recurrence, workload, None) == backend.now + timedelta(seconds=DEADLINE)


def test_any_report_of_any_rank_shows_progress() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    for rank in (0, 3, 0, 7, 3):
        backend.advance(DEADLINE - 1)
        backend.report(name, epoch=0, rank=rank)
        assert result_of(backend, name) is None
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.HUNG


def test_a_rank_that_repeats_its_question_waits_and_shows_no_progress() -> None:
    backend = backend_with_deadline()
    recurrence, progress = backend.recurrences[backend.start_attempt()], Progress()
    for epoch in (1, 2):
        backend.advance(10)
        asked_at = backend.now
        for repeat in range(4):
            progress = with_heartbeat(recurrence, progress, 1, backend.now, epoch)
            assert progress.last_report_time == asked_at, repeat
            backend.advance(20)
    # A step between two questions counts, and the question is still the same.
    progress = with_heartbeat(recurrence, progress, 1, backend.now)
    stepped_at = backend.now
    backend.advance(20)
    assert with_heartbeat(recurrence, progress, 1, backend.now, 2).last_report_time == stepped_at


def test_the_rank_that_is_silent_longest_is_named() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    for rank in range(4):
        backend.report(name, epoch=1, rank=rank)
    backend.advance(30)
    for rank in (0, 1, 3):
        backend.report(name, epoch=2, sequence=2, rank=rank)
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.HUNG
    assert "rank 2 is silent longest, since 2026-03-01T12:00:00Z" in backend.recurrences[name].status.message


@pytest.mark.parametrize(
    ("silent", "text"),
    [
        # torchrun: two ranks a pod, so the index is not the rank.
        (3, "rank 3 in pod a-1-y of index 1 on node gpu-8 is silent longest"),
        (0, "rank 0 in pod a-0-x of index 0 on node gpu-7 is silent longest"),
    ],
)
def test_the_pod_and_the_node_of_the_rank_that_is_silent_longest_are_named(silent: int, text: str) -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    pods = tuple(WorkloadPod(f"a-{index}-{'xy'[index]}", f"gpu-{index + 7}", index, f"uid-{index}") for index in (0, 1))
    backend.workloads[name] = replace(backend.workloads[name], pods=pods)
    progress = Progress()
    for rank in (silent, *(rank for rank in range(4) if rank != silent)):
        progress = with_heartbeat(backend.recurrences[name], progress, rank, backend.now, pod_uid=pods[rank // 2].uid)
        backend.advance(30)
    assert text in hang_message(with_progress(backend, name, progress), backend.workloads[name])


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([WorkloadPod("a-1-y", "gpu-8", 1), WorkloadPod("a-0-x", "gpu-7", 0)], "rank 0 in pod a-0-x of index 0 on"),
        ([WorkloadPod("a-x", "gpu-7")], "rank 0 in pod a-x on node gpu-7 is"),
        # The pods of a Job without indices cannot be told apart.
        ([WorkloadPod("a-x", "gpu-7"), WorkloadPod("a-y", "gpu-7")], "rank 0 is"),
        ([], "rank 0 is"),
    ],
)
def test_what_is_read_from_the_output_is_that_of_the_first_pod(pods: list[WorkloadPod], text: str) -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    progress = with_heartbeat(backend.recurrences[name], Progress(), 0, backend.now)
    workload = replace(backend.workloads[name], pods=tuple(pods))
    assert text in hang_message(with_progress(backend, name, progress), workload)


def pods_of_two_ranks(count: int) -> tuple[WorkloadPod, ...]:
    return tuple(WorkloadPod(f"a-{index}", f"gpu-{index}", index, f"uid-{index}") for index in range(count))


@pytest.mark.parametrize(
    ("reported", "pods", "by_token", "text"),
    [
        ((0, 2, 3), 2, True, "; rank 1 of 4 never reported; see its log"),
        ((0,), 2, True, "; ranks 1, 2, 3 of 4 never reported, and no process in pod a-1 of index 1 on node gpu-1; see"),
        ((1,), 6, True, "pod a-3 of index 3 on node gpu-3 and 2 others; see"),
        ((0,), 2, False, "; ranks 1, 2, 3 of 4 never reported; see its log"),
        ((0, 1, 2, 3), 2, True, "Z; see its log"),
    ],
)
def test_ranks_and_pods_that_never_reported_are_named_too(
    reported: tuple[int, ...], pods: int, by_token: bool, text: str
) -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    progress = Progress(ranks=2 * pods if pods > 2 else 4)
    for rank in reported:
        uid = f"uid-{rank // 2}" if by_token else ""
        progress = with_heartbeat(backend.recurrences[name], progress, rank, backend.now, pod_uid=uid)
    workload = replace(backend.workloads[name], pods=pods_of_two_ranks(pods))
    assert text in hang_message(with_progress(backend, name, progress), workload)


def with_progress(backend: ModelBackend, name: str, progress: Progress) -> TrainingAttempt:
    return backend.recurrences[name].model_copy(update={"progress": progress})


def test_a_training_that_never_reports_has_the_deadline_from_the_start_of_its_pods() -> None:
    backend = backend_with_deadline()
    backend.reconcile()
    (name,) = backend.running
    backend.advance(10 * DEADLINE)  # no node, then a large image
    assert result_of(backend, name) is None
    backend.run_workload(name)
    backend.advance(DEADLINE - 1)
    assert result_of(backend, name) is None
    backend.advance(1)
    assert result_of(backend, name) is Result.HUNG
    assert "none ever did although they run since 2026-03-01T13:40:00Z" in backend.recurrences[name].status.message


def test_the_wait_of_a_replaced_pod_does_not_count() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    backend.report(name, epoch=1, metric=0.5)
    backend.workloads[name] = replace(backend.workloads[name], all_running_since=None)
    backend.advance(10 * DEADLINE)
    assert result_of(backend, name) is None
    backend.workloads[name] = replace(backend.workloads[name], all_running_since=backend.now)
    backend.advance(DEADLINE - 1)
    assert result_of(backend, name) is None
    backend.advance(1)
    assert result_of(backend, name) is Result.HUNG


def test_silence_that_no_operator_could_hear_does_not_count() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    backend.report(name, epoch=1, metric=0.5)
    backend.advance(10 * DEADLINE)
    backend.observed_since = backend.now
    assert result_of(backend, name) is None
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.HUNG


def test_an_attempt_without_a_deadline_may_be_silent_for_ever() -> None:
    backend = ModelBackend(job())
    name = backend.start_attempt()
    backend.report(name, epoch=1, metric=0.5)
    backend.advance(10**7)
    assert result_of(backend, name) is None
    progress = backend.recurrences[name].progress or Progress()
    assert (progress.last_report_time, progress.heartbeats) == (None, ())


def test_a_hang_counts_against_the_batch_size_and_is_retried_like_a_crash() -> None:
    backend = backend_with_deadline(retries=1)
    name = backend.start_attempt()
    backend.report(name, epoch=3, metric=0.5)
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.HUNG
    (observation,) = job_observations.observations(tuple(backend.records.values()))
    assert observation.outcome is Outcome.CRASHED
    retry = backend.recurrences[backend.running[0]].spec
    assert (retry.index, retry.attempt) == (0, 1)


def test_a_hang_with_an_unhealthy_device_does_not_count_against_the_batch_size() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    backend.workloads[name] = replace(backend.workloads[name], unhealthy="pod a: unhealthy: nvidia.com/gpu GPU-1")
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.DISRUPTED
    assert "GPU-1; no process reported" in backend.recurrences[name].status.message
    assert job_observations.observations(tuple(backend.records.values())) == ()


def test_a_training_that_hangs_after_its_target_has_reached_it() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    backend.report(name, epoch=3, metric=0.95)
    backend.advance(DEADLINE)
    assert result_of(backend, name) is Result.REACHED
    assert "no process reported" in backend.recurrences[name].status.message


def test_a_running_attempt_keeps_the_deadline_that_it_was_started_with() -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    spec = backend.job.spec.model_copy(update={"progress_deadline_seconds": 60})
    backend.job = backend.job.model_copy(update={"spec": spec})
    backend.advance(DEADLINE - 1)
    assert result_of(backend, name) is None


@given(st.lists(st.tuples(st.integers(0, 2 * MAX_HEARTBEATS), st.integers(0, 50)), max_size=40))
def test_the_heartbeats_have_the_latest_report_of_each_rank_within_their_bound(reports: list[tuple[int, int]]) -> None:
    backend = backend_with_deadline()
    name = backend.start_attempt()
    latest: dict[int, Any] = {}
    progress = Progress()
    for rank, seconds in reports:
        backend.advance(seconds)
        progress = with_heartbeat(backend.recurrences[name], progress, rank, backend.now)
        latest[rank] = backend.now
    listed = {rank: time for rank, time in latest.items() if rank < MAX_HEARTBEATS}
    assert [(each.rank, each.time) for each in progress.heartbeats] == sorted(listed.items())
    assert progress.last_report_time == (backend.now if reports else None)


def test_a_status_is_written_ever_more_rarely_however_often_a_training_reports(backend: ModelBackend) -> None:
    name, writes = backend.start_attempt(), []
    for second in range(1, 301):
        before = backend.status_writes[name]
        backend.advance(1)
        backend.report(name, sequence=second, epoch=second / 100, joules=300.0 * second, seconds=second)
        assert backend.reconcile() <= backend.now + MAX_INTERVAL
        if backend.status_writes[name] > before:
            summary = backend.recurrences[name].status.progress
            assert (summary.epoch, summary.energy_joules) == (Decimal(second) / 100, 300 * second)
            assert (summary.time_seconds, summary.last_report_time) == (second, backend.now)
            writes.append(second)
    assert writes == [5, 10, 15, 23, 35, 53, 80, 110, 140, 170, 200, 230, 260, 290]


def test_a_short_attempt_writes_its_progress_with_its_outcome_alone(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    written = backend.status_writes[name]
    status = backend.finish(name, epoch=5, metric=0.95)
    assert (status.result, status.progress.epoch, status.progress.metric) == (Result.REACHED, 5, Decimal("0.95"))
    # The condition Ending, and the outcome.
    assert backend.status_writes[name] - written <= 2


def test_after_the_clock_was_set_back_the_next_report_is_stated(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    for sequence, seconds in ((1, 60), (2, -3600), (3, 60)):
        backend.advance(seconds)
        backend.report(name, sequence=sequence, epoch=sequence)
        backend.reconcile()
        summary = backend.recurrences[name].status.progress
        assert (summary.epoch, summary.last_report_time) == (sequence, backend.now)


def test_the_cost_so_far_counts_no_trials_of_probes(backend: ModelBackend) -> None:
    attempt = backend.recurrences[backend.start_attempt()]
    spec = attempt.spec.model_copy(update={"stop_cost_joules": Decimal(10_000)})
    progress = progress_after(attempt, report(joules=1000.0, seconds=10.0))
    attempt = attempt.model_copy(update={"spec": spec, "progress": progress})
    # Half of 1,000 J, and half of 10 s at 400 W.
    assert cost_percent(attempt) == pytest.approx(25)
    probed = with_probes(progress, ProbeReport(4, 200.0, 5.0, ()), restarted=False)
    assert cost_percent(attempt.model_copy(update={"progress": probed})) == pytest.approx(14)


def test_the_power_now_is_that_of_all_gpus_or_not_known(backend: ModelBackend) -> None:
    attempt = backend.recurrences[backend.start_attempt()]
    sent = report(joules=1000.0, seconds=10.0, gpus=2)
    progress = progress_after(attempt, sent)
    assert power_watts(progress) is None
    known = with_recent_power(attempt.progress, progress, sent.gpus, backend.now)
    assert power_watts(known) == 100
    assert power_watts(with_recent_power(attempt.progress, progress, sent.gpus[:1], backend.now)) is None


def test_an_attempt_whose_row_is_lost_goes_on_by_the_next_cumulative_reports(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, sequence=1, epoch=1, metric=0.5, joules=1000.0, seconds=10.0)
    backend.reconcile_after(60)
    before = backend.recurrences[name].status.progress
    backend.lose_database()
    backend.reconcile()
    lost = backend.recurrences[name]
    assert (lost.progress_version, lost.status.progress) == (0, before), "what was written is true still"
    backend.finish(name, sequence=2, epoch=2, metric=0.95, joules=2000.0, seconds=20.0)
    record = backend.records[(0, 0)]
    assert (record.result, record.epochs, record.energy_joules, record.time_seconds) == ("Reached", 2, 2000, 20)
    assert record.curve.epochs == (2,)
    assert summary_of(backend.recurrences[name], ended=True) == backend.recurrences[name].status.progress


@pytest.mark.parametrize("later", ["the training reports", "its workload runs again", "a user asks for another run"])
def test_an_outcome_that_was_decided_before_a_kill_is_the_one_that_the_next_operator_writes(
    backend: ModelBackend, later: str
) -> None:
    name = backend.start_attempt()
    backend.report(name, sequence=1, epoch=1, metric=0.5)
    backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1)
    backend.killed_once_decided = True
    with pytest.raises(KilledError):
        backend.reconcile()
    assert backend.recurrences[name].status.result is None
    if later == "the training reports":
        backend.report(name, sequence=2, epoch=9, metric=0.99, finished=True)
    elif later == "its workload runs again":
        backend.run_workload(name)
        assert backend.workloads[name].phase is WorkloadPhase.RUNNING
    else:
        backend.change_spec(concurrencyPolicy="Replace", runRequest="again")
    status = backend.status_of(name)
    assert (status.result, status.epochs) == (Result.CRASHED, 1)
    assert (backend.records[(0, 0)].result, backend.records[(0, 0)].epochs) == ("Crashed", 1)
