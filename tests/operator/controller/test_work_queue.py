"""Who is looked at when. The threads are real; what they wait for is told by events, never by sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from wattloop.errors import OperationError
from wattloop_operator.controller.work_queue import PATIENT_FAILURES, WorkQueue
from wattloop_operator.domain.names import JobKey

PATIENCE_SECONDS = 60.0
NOW = 1_772_323_200.0
FIRST, SECOND = JobKey("team", "first"), JobKey("team", "second")


class Looks:
    """Records who was looked at, and answers as the test says."""

    def __init__(self) -> None:
        self.seen: list[JobKey] = []
        self.answer: Callable[[JobKey], datetime | None] = lambda _: None
        self._changed = threading.Condition()

    def __call__(self, key: JobKey) -> datetime | None:
        with self._changed:
            self.seen.append(key)
            self._changed.notify_all()
        return self.answer(key)

    def await_count(self, count: int) -> list[JobKey]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, PATIENCE_SECONDS), self.seen
        return self.seen


def let_pass(work_queue: WorkQueue, clock: list[float], seconds: float) -> None:
    """Let time pass once nobody is being looked at, and have the clock looked at."""
    with work_queue._changed:
        idle = work_queue._changed.wait_for(
            lambda: not any(job.running or job.waiting for job in work_queue._jobs.values()), PATIENCE_SECONDS
        )
        assert idle
        clock[0] += seconds
        work_queue._changed.notify_all()


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def clock() -> list[float]:
    return [NOW]


@pytest.fixture
def work_queue(looks: Looks, clock: list[float]) -> Iterator[WorkQueue]:
    made = WorkQueue(looks, workers=2, clock=lambda: clock[0])
    made.start()
    yield made
    assert made.stop(PATIENCE_SECONDS)


def test_a_job_is_looked_at_when_asked_for(work_queue: WorkQueue, looks: Looks) -> None:
    work_queue.ask(FIRST)
    assert looks.await_count(1) == [FIRST]


def test_asked_while_it_is_looked_at_it_is_looked_at_once_more(work_queue: WorkQueue, looks: Looks) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: JobKey) -> None:
        if not entered.is_set():
            entered.set()
            assert leave.wait(PATIENCE_SECONDS)

    looks.answer = slow
    work_queue.ask(FIRST)
    assert entered.wait(PATIENCE_SECONDS)
    for _ in range(5):
        work_queue.ask(FIRST)
    work_queue.ask(SECOND)
    looks.await_count(2)
    assert looks.seen == [FIRST, SECOND], "never twice at once"
    leave.set()
    assert looks.await_count(3)[2] == FIRST
    work_queue.ask(SECOND)
    assert sorted(map(str, looks.await_count(4))) == ["team/first", "team/first", "team/second", "team/second"]


def test_a_job_is_looked_at_when_its_time_has_come(work_queue: WorkQueue, looks: Looks, clock: list[float]) -> None:
    looks.answer = lambda key: datetime.fromtimestamp(NOW + 100, UTC) if key == FIRST and clock[0] == NOW else None
    work_queue.ask(FIRST)
    looks.await_count(1)
    let_pass(work_queue, clock, 99)
    work_queue.ask(SECOND)
    assert looks.await_count(2) == [FIRST, SECOND]
    let_pass(work_queue, clock, 2)
    assert looks.await_count(3).count(FIRST) == 2


@pytest.mark.parametrize("failure", [OperationError("away"), ValueError("a mistake")])
def test_a_job_that_fails_holds_up_no_other_and_is_tried_again(
    failure: Exception, work_queue: WorkQueue, looks: Looks, clock: list[float]
) -> None:
    def failing(key: JobKey) -> None:
        if key == FIRST and looks.seen.count(FIRST) == 1:
            raise failure

    looks.answer = failing
    work_queue.ask(FIRST)
    work_queue.ask(SECOND)
    assert set(looks.await_count(2)) == {FIRST, SECOND}
    let_pass(work_queue, clock, 2)
    assert looks.await_count(3)[2] == FIRST


def test_a_job_that_keeps_failing_waits_its_time_out_whatever_is_told(
    work_queue: WorkQueue, looks: Looks, clock: list[float]
) -> None:
    failed = threading.Semaphore(0)
    work_queue._failed = lambda _: failed.release()

    def failing(key: JobKey) -> None:
        if key == FIRST:
            raise OperationError("away")

    looks.answer = failing
    for _ in range(PATIENT_FAILURES):
        work_queue.ask(FIRST)
        assert failed.acquire(timeout=PATIENCE_SECONDS)
        let_pass(work_queue, clock, 0)
    work_queue.ask(FIRST)
    work_queue.ask(SECOND)
    looks.await_count(PATIENT_FAILURES + 1)
    assert looks.seen.count(FIRST) == PATIENT_FAILURES


def test_a_clock_that_is_set_back_a_day_keeps_no_failed_job_waiting_for_a_day(
    work_queue: WorkQueue, looks: Looks, clock: list[float]
) -> None:
    failed = threading.Semaphore(0)
    work_queue._failed = lambda _: failed.release()

    def failing(_: JobKey) -> None:
        if clock[0] >= NOW:
            raise OperationError("away")

    looks.answer = failing
    for _ in range(PATIENT_FAILURES):
        work_queue.ask(FIRST)
        assert failed.acquire(timeout=PATIENCE_SECONDS)
        let_pass(work_queue, clock, 0)
    let_pass(work_queue, clock, -86_400)
    work_queue.ask(FIRST)
    assert looks.await_count(PATIENT_FAILURES + 1) == [FIRST] * (PATIENT_FAILURES + 1)


def test_a_clock_that_is_set_ahead_a_day_has_every_job_looked_at_whose_time_has_come(
    work_queue: WorkQueue, looks: Looks, clock: list[float]
) -> None:
    looks.answer = lambda _: datetime.fromtimestamp(NOW + 3600, UTC) if clock[0] == NOW else None
    work_queue.ask(FIRST)
    work_queue.ask(SECOND)
    looks.await_count(2)
    let_pass(work_queue, clock, 86_400)
    assert set(looks.await_count(4)[2:]) == {FIRST, SECOND}


def test_a_scheduler_that_was_never_started_can_be_stopped(looks: Looks) -> None:
    assert WorkQueue(looks, workers=2).stop(0.0)
