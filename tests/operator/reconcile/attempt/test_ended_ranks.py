"""A rank that dies is named, and the batch size that was really trained is stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.backends.model_backend import KEY, ModelBackend, job, report
from wattloop_operator.api.attempt import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrenceStatus
from wattloop_operator.cluster.events import events_of
from wattloop_operator.domain.snapshot import Failure, Snapshot, WorkloadPod
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.actions import EmitEvent, WriteRecurrenceStatus
from wattloop_operator.reconcile.attempt.progress import progress_after
from wattloop_operator.workloads.injection import RunAddresses, run_environment


@pytest.mark.parametrize(
    ("reported", "text"),
    [
        ({0, 1, 3}, "rank 2 of 4 ended without a report; exit code 1"),
        ({3}, "ranks 0, 1, 2 of 4 ended without a report; exit code 1"),
        ({0, 1, 2, 3}, "exit code 1"),
        (set(), "exit code 1"),
    ],
)
def test_a_rank_that_is_killed_is_named(reported: set[int], text: str) -> None:
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
        ({0, 1, 2, 3}, None, 1, None),
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
    assert dead == ([] if text is None else [EmitEvent(True, "RankDied", f"recurrence 0 ({name}): {text}")])


def crashed(reported: set[int], pod: WorkloadPod | None = None, pods: int = 0) -> tuple[ModelBackend, str]:
    """A job whose attempt of four ranks has crashed, and the attempt's name; some ranks reported their failure."""
    backend = ModelBackend(job())
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock)
    (name,) = backend.running
    backend.run_workload(name)
    for rank in range(4):
        sent = replace(report(), rank=rank, ranks=4, failed=rank in reported)
        recurrence = backend.recurrences[name]
        status = recurrence.status.model_copy(update={"progress": progress_after(recurrence, sent)})
        backend.recurrences[name] = backend._versioned(recurrence.model_copy(update={"status": status}))
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
