"""A local run waits for the next recurrence by the clock, even if the machine was suspended."""

import threading
from datetime import timedelta

import pytest

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.local_run import MAX_SLEEP_SECONDS, Runner


class VirtualEvent(threading.Event):
    """An event whose wait advances a virtual clock.

    The machine is suspended for hours in the first wait.
    """

    def __init__(self, backend: ModelBackend) -> None:
        super().__init__()
        self.backend = backend
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        self.backend.advance(timeout + (7 * 3600 if len(self.waits) == 1 else 0))
        return self.is_set()


def test_a_start_that_passed_during_a_suspend_happens_on_resume() -> None:
    backend = ModelBackend(job(maxRecurrences=2))
    wake_event = VirtualEvent(backend)

    def work(_: Snapshot) -> None:
        for name in backend.running:
            if name in backend.workloads and backend.workloads[name].started_at is None:
                backend.run_workload(name)
                backend.report(name, metric=0.95, finished=True)
                backend.end_workload(name)
                wake_event.set()

    ended = Runner(backend, KEY, wake_event, work, backend.clock).run()
    assert ended.job.status.totals.reached == 2
    assert max(wake_event.waits) <= MAX_SLEEP_SECONDS
    first, second = sorted(ended.recurrences, key=lambda each: each.spec.index)
    assert second.spec.scheduled_time - first.spec.scheduled_time == timedelta(hours=7)
    assert len(wake_event.waits) <= 3


def test_a_run_ends_with_an_error_when_one_of_its_threads_has_ended() -> None:
    backend = ModelBackend(job(maxRecurrences=2))
    thread = WatchedThread(lambda: None, "http-reporting API")
    try:
        thread.start()
        thread.join()
        with pytest.raises(OperationError, match="the thread http-reporting API has ended; the same"):
            Runner(backend, KEY, VirtualEvent(backend), lambda _: None, backend.clock).run()
    finally:
        thread.release()
