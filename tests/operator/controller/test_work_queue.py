"""When the work queue reconciles which job. The threads are real; tests wait for events and never sleep."""

import argparse
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient

from support.backends.model_backend import KEY, ModelBackend, job
from support.backends.sample_reports import START
from wattloop.errors import OperationError
from wattloop_operator.controller.work_queue import MAX_EAGER_RETRIES, WorkQueue
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.factory import Factory
from wattloop_operator.operator_settings import SETTINGS, settings_from
from wattloop_operator.reconcile.actions import Action, StartWorkload, WriteJobStatus
from wattloop_operator.store import open_store

TIMEOUT_SECONDS = 60.0
NOW = 1_772_323_200.0
FIRST, SECOND = JobKey("team", "first"), JobKey("team", "second")


class Reconciler:
    """Records the reconciled jobs and returns what the test chooses."""

    def __init__(self) -> None:
        self.calls: list[JobKey] = []
        self.result: Callable[[JobKey], datetime | None] = lambda _: None
        self._changed = threading.Condition()

    def __call__(self, key: JobKey) -> datetime | None:
        with self._changed:
            self.calls.append(key)
            self._changed.notify_all()
        return self.result(key)

    def await_count(self, count: int) -> list[JobKey]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, TIMEOUT_SECONDS), self.calls
        return self.calls


def advance(work_queue: WorkQueue, clock: list[float], seconds: float) -> None:
    """Advance the clock once no job is queued or running, and wake the timer."""
    with work_queue._wakes_changed:
        idle = work_queue._wakes_changed.wait_for(
            lambda: not any(job.running or job.queued for job in work_queue._jobs.values()), TIMEOUT_SECONDS
        )
        assert idle
        clock[0] += seconds
        work_queue._wakes_changed.notify_all()


@pytest.fixture
def reconciler() -> Reconciler:
    return Reconciler()


@pytest.fixture
def clock() -> list[float]:
    return [NOW]


@pytest.fixture
def work_queue(reconciler: Reconciler, clock: list[float]) -> Iterator[WorkQueue]:
    queue = WorkQueue(reconciler, workers=2, clock=lambda: clock[0])
    queue.start()
    yield queue
    assert queue.stop(TIMEOUT_SECONDS)


def test_an_added_job_is_reconciled(work_queue: WorkQueue, reconciler: Reconciler) -> None:
    work_queue.add(FIRST)
    assert reconciler.await_count(1) == [FIRST]


def test_a_job_added_while_it_runs_is_reconciled_once_more(work_queue: WorkQueue, reconciler: Reconciler) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: JobKey) -> None:
        if not entered.is_set():
            entered.set()
            assert leave.wait(TIMEOUT_SECONDS)

    reconciler.result = slow
    work_queue.add(FIRST)
    assert entered.wait(TIMEOUT_SECONDS)
    for _ in range(5):
        work_queue.add(FIRST)
    work_queue.add(SECOND)
    reconciler.await_count(2)
    assert reconciler.calls == [FIRST, SECOND], "never twice concurrently"
    leave.set()
    assert reconciler.await_count(3)[2] == FIRST
    work_queue.add(SECOND)
    assert sorted(map(str, reconciler.await_count(4))) == ["team/first", "team/first", "team/second", "team/second"]


def test_a_job_is_reconciled_when_its_time_comes(
    work_queue: WorkQueue, reconciler: Reconciler, clock: list[float]
) -> None:
    reconciler.result = lambda key: datetime.fromtimestamp(NOW + 100, UTC) if key == FIRST and clock[0] == NOW else None
    work_queue.add(FIRST)
    reconciler.await_count(1)
    advance(work_queue, clock, 99)
    work_queue.add(SECOND)
    assert reconciler.await_count(2) == [FIRST, SECOND]
    advance(work_queue, clock, 2)
    assert reconciler.await_count(3).count(FIRST) == 2


@pytest.mark.parametrize("failure", [OperationError("away"), ValueError("a bug")])
def test_a_job_that_fails_delays_no_other_and_is_retried(
    failure: Exception, work_queue: WorkQueue, reconciler: Reconciler, clock: list[float]
) -> None:
    def failing(key: JobKey) -> None:
        if key == FIRST and reconciler.calls.count(FIRST) == 1:
            raise failure

    reconciler.result = failing
    work_queue.add(FIRST)
    work_queue.add(SECOND)
    assert set(reconciler.await_count(2)) == {FIRST, SECOND}
    advance(work_queue, clock, 2)
    assert reconciler.await_count(3)[2] == FIRST


def test_events_do_not_shorten_the_backoff_of_a_job_that_keeps_failing(
    work_queue: WorkQueue, reconciler: Reconciler, clock: list[float]
) -> None:
    failed = threading.Semaphore(0)
    work_queue._failed = lambda _: failed.release()

    def failing(key: JobKey) -> None:
        if key == FIRST:
            raise OperationError("away")

    reconciler.result = failing
    for _ in range(MAX_EAGER_RETRIES):
        work_queue.add(FIRST)
        assert failed.acquire(timeout=TIMEOUT_SECONDS)
        advance(work_queue, clock, 0)
    work_queue.add(FIRST)
    work_queue.add(SECOND)
    reconciler.await_count(MAX_EAGER_RETRIES + 1)
    assert reconciler.calls.count(FIRST) == MAX_EAGER_RETRIES


def test_a_clock_set_back_a_day_delays_no_failed_job_by_a_day(
    work_queue: WorkQueue, reconciler: Reconciler, clock: list[float]
) -> None:
    failed = threading.Semaphore(0)
    work_queue._failed = lambda _: failed.release()

    def failing(_: JobKey) -> None:
        if clock[0] >= NOW:
            raise OperationError("away")

    reconciler.result = failing
    for _ in range(MAX_EAGER_RETRIES):
        work_queue.add(FIRST)
        assert failed.acquire(timeout=TIMEOUT_SECONDS)
        advance(work_queue, clock, 0)
    advance(work_queue, clock, -86_400)
    work_queue.add(FIRST)
    assert reconciler.await_count(MAX_EAGER_RETRIES + 1) == [FIRST] * (MAX_EAGER_RETRIES + 1)


def test_a_clock_set_ahead_a_day_makes_every_job_due(
    work_queue: WorkQueue, reconciler: Reconciler, clock: list[float]
) -> None:
    reconciler.result = lambda _: datetime.fromtimestamp(NOW + 3600, UTC) if clock[0] == NOW else None
    work_queue.add(FIRST)
    work_queue.add(SECOND)
    reconciler.await_count(2)
    advance(work_queue, clock, 86_400)
    assert set(reconciler.await_count(4)[2:]) == {FIRST, SECOND}


def test_a_queue_that_was_never_started_can_be_stopped(reconciler: Reconciler) -> None:
    assert WorkQueue(reconciler, workers=2).stop(0.0)


def test_the_job_of_a_namespace_waits_for_one_job_of_each_other_however_many_change(reconciler: Reconciler) -> None:
    queue = WorkQueue(reconciler, workers=1)
    hostile = [JobKey("hostile", f"job-{number}") for number in range(3_000)]
    for key in hostile:
        queue.add(key)
    victims = [JobKey("team", "victim"), JobKey("team", "second"), JobKey("third", "job")]
    for key in victims:
        queue.add(key)
    assert queue.depth == len(hostile) + len(victims)
    # Each changes again whenever one of them is reconciled.
    reconciler.result = lambda _: queue.add(hostile[len(reconciler.calls) % len(hostile)])
    queue.start()
    calls = reconciler.await_count(6)[:6]
    assert queue.stop(TIMEOUT_SECONDS)
    assert calls == [hostile[0], victims[0], victims[2], hostile[1], victims[1], hostile[2]]


class DueJobs:
    """Jobs that are due, and the order of their starts and statuses."""

    def __init__(self, *keys: JobKey) -> None:
        self.order: list[tuple[str, type[Action]]] = []
        self.stated = threading.Semaphore(0)
        self._backends: dict[str, ModelBackend] = {}
        for key in keys:
            due = job()
            metadata = due.metadata.model_copy(update={"name": key.name})
            self._backends[key.name] = ModelBackend(due.model_copy(update={"metadata": metadata}))

    def snapshot(self, key: JobKey) -> Snapshot | None:
        return self._backends[key.name].snapshot(KEY)

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        name = snapshot.job.metadata.name
        self._backends[name].carry_out(snapshot, action)
        if isinstance(action, StartWorkload | WriteJobStatus):
            self.order.append((name, type(action)))
        if isinstance(action, WriteJobStatus):
            self.stated.release()

    def requeue_after_seconds(self, _: JobKey) -> None:
        return None


def test_the_operators_one_worker_starts_a_job_that_waits_before_it_writes_the_status_of_another(
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = dict.fromkeys((setting.key for setting in SETTINGS), None)
    settings = settings_from(argparse.Namespace(**given | {"config": None, "workers": "1"}), {})
    jobs: Any = DueJobs(FIRST, SECOND)
    with open_store(tmp_path / "wattloop.db") as store:
        queue = Factory(settings, store, ApiClient(), lambda _: {}, lambda: START)._work_queue(jobs)
        queue.add(FIRST)
        queue.add(SECOND)
        queue.start()
        for _ in range(2):
            assert jobs.stated.acquire(timeout=TIMEOUT_SECONDS)
        assert queue.stop(TIMEOUT_SECONDS)
    assert jobs.order.index(("second", StartWorkload)) < jobs.order.index(("first", WriteJobStatus))
