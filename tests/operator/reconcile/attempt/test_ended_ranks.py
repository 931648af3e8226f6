"""A rank that dies is named, and the batch size that was really trained is stated."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, job
from support.backends.sample_reports import report
from wattloop.wire.training_messages import Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrenceStatus
from wattloop_operator.cluster.events import events_of
from wattloop_operator.domain.progress import FailedRank, Progress
from wattloop_operator.domain.snapshot import Failure, Snapshot, WorkloadPod, WorkloadState
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.actions import EmitEvent, WriteRecurrenceStatus
from wattloop_operator.reconcile.attempt.ended_ranks import first_failed
from wattloop_operator.reconcile.attempt.report_effect import OutputReport, progress_after, progress_after_output
from wattloop_operator.workloads.injection import RunAddresses, run_environment


@pytest.mark.parametrize(
    ("reported", "text"),
    [
        ({0, 1, 3}, "rank 2 of 4 ended without a report; exit code 1"),
        ({3}, "rank 0, 1 or 2 of 4 failed first: they ended without a report; exit code 1"),
        ({0, 1, 2, 3}, "rank 0 of 4 failed first (RuntimeError); exit code 1"),
        (set(), "exit code 1"),
    ],
)
def test_a_rank_that_ends_without_a_report_is_named(reported: set[int], text: str) -> None:
    backend, name = crashed(reported)
    ended = backend.recurrences[name].status
    assert ended.result is Result.CRASHED
    assert ended.message.partition(": ")[2] == text


@pytest.mark.parametrize(
    ("reported", "index", "pods", "text"),
    [
        ({0, 1, 3}, 2, 4, "rank 2 of 4 ended without a report; pod a-x of index 2 on node gpu-7 failed first"),
        # The others were ended before they noticed.
        (set(), 2, 4, "rank 2 of 4 died; pod a-x of index 2 on node gpu-7 failed first"),
        # torchrun in two pods: the index is not the rank.
        ({0, 1, 3}, 1, 2, "rank 2 of 4 ended without a report; pod a-x of index 1 on node gpu-7 failed first"),
        (set(), 1, 2, None),
        ({0, 1, 2, 3}, None, 1, "rank 0 of 4 failed first (RuntimeError); pod a-x on node gpu-7 failed first"),
        # The launcher ended rank 3, and the cluster knows whose pod was first.
        ({0, 1}, 2, 4, "rank 2 of 4 died; pod a-x of index 2 on node gpu-7 failed first"),
        # A pod that failed as a consequence is no evidence.
        (
            {0, 1},
            1,
            4,
            "rank 2 or 3 of 4 failed first: they ended without a report; pod a-x of index 1 on node gpu-7 failed first",
        ),
        ({0, 1, 3}, None, 1, "rank 2 of 4 ended without a report; pod a-x on node gpu-7 failed first"),
    ],
)
def test_a_rank_that_died_has_an_event_with_its_pod_and_node(
    reported: set[int], index: int | None, pods: int, text: str | None
) -> None:
    backend, name = crashed(reported, WorkloadPod("a-x", "gpu-7", index), pods)
    ended = backend.recurrences[name]
    before = ended.model_copy(update={"status": TrainingRecurrenceStatus()})
    events = events_of(Snapshot(backend.job), WriteRecurrenceStatus(before, ended.status))
    dead = [event for event in events if event.reason == "RankDied"]
    assert dead == ([] if text is None else [EmitEvent(True, "RankDied", f"recurrence 0 ({name}): {text}", before)])


def failure_of(name: str, *, rank: int, consequence: bool = False) -> Report:
    return replace(report(), rank=rank, ranks=4, failure=name, consequence=consequence)


LOST: dict[str, Any] = {"name": "RuntimeError", "consequence": True}


@pytest.mark.parametrize(
    ("reports", "killed", "text"),
    [
        # torchrun ended the others before they noticed.
        ([failure_of("OutOfMemoryError", rank=2)], (), "rank 2 of 4 failed first (OutOfMemoryError)"),
        # The others lost their connection to it. One of them was ended.
        (
            [failure_of("ValueError", rank=1), failure_of(rank=0, **LOST), failure_of(rank=3, **LOST)],
            (),
            "rank 1 of 4 failed first (ValueError)",
        ),
        ([failure_of(rank=0, **LOST), failure_of(rank=1, **LOST)], (), "rank 2 or 3 of 4 failed first: they ended"),
        ([failure_of(rank=0, **LOST), failure_of(rank=1, **LOST)], (3,), "rank 3 of 4 was killed"),
        ([failure_of("ValueError", rank=0)], (2,), "rank 2 of 4 was killed"),
        ([], (1, 2), "rank 1 or 2 of 4 was killed first"),
        # What torchrun says of a rank that reported its end is what followed.
        ([failure_of("ValueError", rank=0)], (0,), "rank 0 of 4 failed first (ValueError)"),
        ([failure_of(rank=rank, **LOST) for rank in (3, 0, 1, 2)], (), "rank 3 of 4 failed first (RuntimeError)"),
        # torchrun started all ranks again.
        ([failure_of("ValueError", rank=1), replace(report(), rank=1, ranks=4)], (), ""),
        ([], (), ""),
    ],
)
def test_the_first_failure_is_told_from_its_consequences(
    reports: list[Report], killed: tuple[int, ...], text: str
) -> None:
    backend = ModelBackend(job())
    recurrence = backend.recurrences[backend.start_attempt()]
    progress = Progress(ranks=4)
    for each in reports:
        progress = progress_after(recurrence.model_copy(update={"progress": progress}), each)
    found = first_failed(progress, WorkloadState("a", killed_ranks=killed))
    assert found.startswith(text) if text else not found


def test_what_is_seen_from_outside_tells_nothing_of_the_end_of_a_process() -> None:
    backend = ModelBackend(job())
    recurrence = backend.recurrences[backend.start_attempt()]
    failed = progress_after(recurrence, failure_of("ValueError", rank=0))
    # The energy that the training used after its last report.
    seen = progress_after_output(recurrence.model_copy(update={"progress": failed}), OutputReport(0))
    assert (seen.ended_ranks, seen.first_failure) == ("1", FailedRank(rank=0, failure="ValueError"))


def test_a_single_process_is_named_by_its_exception() -> None:
    failed = FailedRank(rank=0, failure="OutOfMemoryError")
    assert first_failed(Progress(ended_ranks="1", first_failure=failed), WorkloadState("a")) == "OutOfMemoryError"
    assert first_failed(Progress(), WorkloadState("a")) == ""


def crashed(reported: set[int], pod: WorkloadPod | None = None, pods: int = 0) -> tuple[ModelBackend, str]:
    """A job whose attempt of four ranks has crashed, and the attempt's name; some ranks reported their failure."""
    backend = ModelBackend(job())
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock)
    (name,) = backend.running
    backend.run_workload(name)
    for rank in range(4):
        sent = replace(
            report(), rank=rank, ranks=4, failure="RuntimeError" if rank in reported else "", consequence=True
        )
        recurrence = backend.recurrences[name]
        backend.recurrences[name] = backend._versioned(
            recurrence.model_copy(update={"progress": progress_after(recurrence, sent)})
        )
    backend.end_workload(name, Failure.CRASHED, "exit code 1")
    bound = tuple(WorkloadPod(f"a-{number}", "gpu-7", uid=f"uid-{number}") for number in range(pods))
    backend.workloads[name] = replace(backend.workloads[name], failed_pod=pod, pods=bound)
    reconcile(backend, KEY, backend.clock)
    return backend, name


@pytest.mark.parametrize(
    ("batch_size", "devices", "trained"), [(100, 8, (96, 12)), (96, 8, (96, 12)), (4, 8, (8, 1)), (7, 1, (7, 7))]
)
def test_a_global_batch_size_is_rounded_down_to_a_multiple_of_the_devices(
    batch_size: int, devices: int, trained: tuple[int, int]
) -> None:
    backend = ModelBackend(job())
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock)
    recurrence = next(iter(backend.recurrences.values()))
    decided = recurrence.model_copy(update={"spec": recurrence.spec.model_copy(update={"batch_size": batch_size})})
    environment = run_environment(backend.job, decided, RunAddresses(), devices)
    assert (environment.batch_size, environment.per_device_batch_size) == trained
    progress = progress_after(recurrence, replace(report(), batch_size=environment.batch_size))
    assert progress.batch_size == trained[0]
