"""Who is looked at when: jobs that changed, jobs whose time has come, jobs that failed a moment ago.

A job is settled by one worker at a time, however many events tell of it; what is told meanwhile is looked at once more
afterwards. A job that fails waits longer each time and holds up no other.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from wattloop.errors import OperationError
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

Reconcile = Callable[[JobKey], datetime | None]

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
# A job that failed so often in a row waits its time out: the events may be those of its own half-done turns.
PATIENT_FAILURES = 3
MAX_BACKOFF_AFTER_MISTAKE_SECONDS = 600.0
BACKOFF_SPREAD = 0.2
# A clock that was set is noticed within this time.
MAX_SLEEP_SECONDS = 15.0


@dataclass
class _Job:
    """What the scheduler knows of one job."""

    waiting: bool = False
    running: bool = False
    asked_again: bool = False
    wake_at: float | None = None
    failures: int = 0


class WorkQueue:
    """Settles jobs in worker threads.

    Args:
        reconcile: Settles one job and returns when to look again, with a time zone.
        workers: How many jobs are settled at once.
        clock: Seconds since the epoch, as `reconcile` reads the time.
        settled: Called after each look with the job and the seconds it took.
        failed: Called after each look that failed.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        clock: Callable[[], float] = time.time,
        settled: Callable[[JobKey, float], None] = lambda _key, _seconds: None,
        failed: Callable[[JobKey], None] = lambda _key: None,
    ) -> None:
        self._reconcile = reconcile
        self._clock = clock
        self._settled = settled
        self._failed = failed
        lock = threading.Lock()
        # Workers wait for work, the thread that wakes jobs for another time to wait for: a single call wakes one
        # worker, and must not be spent on that thread.
        self._work_there = threading.Condition(lock)
        self._changed = threading.Condition(lock)
        self._jobs: dict[JobKey, _Job] = {}
        self._ready: deque[JobKey] = deque()
        self._wakes: list[tuple[float, str, JobKey]] = []
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"settle-{number}", daemon=True) for number in range(workers)
        ]
        self._threads.append(threading.Thread(target=self._wake, name="wake", daemon=True))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience_seconds: float) -> bool:
        """Finish what is being settled and start nothing more; returns whether all threads ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._work_there.notify_all()
        deadline = time.monotonic() + patience_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def ask(self, key: JobKey) -> None:
        """Have a job looked at soon; one that failed several times in a row, when its time has come."""
        with self._changed:
            job = self._jobs.setdefault(key, _Job())
            if job.running:
                job.asked_again = True
            elif not job.waiting and (job.failures < PATIENT_FAILURES or self._was_set_back(job)):
                self._line_up(key, job)

    def _was_set_back(self, job: _Job) -> bool:
        """Whether the clock was set back since the job failed: it would wait for hours, not for its time."""
        longest_seconds = MAX_BACKOFF_AFTER_MISTAKE_SECONDS * (1 + BACKOFF_SPREAD)
        return job.wake_at is not None and job.wake_at - self._clock() > longest_seconds

    def forget(self, key: JobKey) -> None:
        """Drop a job that is gone, unless it is being settled."""
        with self._changed:
            job = self._jobs.get(key)
            if job is not None and not job.running and not job.waiting:
                del self._jobs[key]

    @property
    def waiting(self) -> int:
        """How many jobs wait for a worker."""
        return len(self._ready)

    @property
    def alive(self) -> bool:
        """Whether every thread runs."""
        return all(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (key := self._next()) is not None:
            started = time.monotonic()
            wake_at, failed = self._settled_once(key)
            self._settled(key, time.monotonic() - started)
            if failed:
                self._failed(key)
            self._done(key, wake_at)

    def _next(self) -> JobKey | None:
        with self._work_there:
            while not self._ready and not self._stopping:
                self._work_there.wait()
            if self._stopping:
                return None
            key = self._ready.popleft()
            job = self._jobs[key]
            job.waiting, job.running, job.asked_again = False, True, False
            return key

    def _settled_once(self, key: JobKey) -> tuple[float | None, bool]:
        job = self._jobs[key]
        try:
            wake_at = self._reconcile(key)
        except OperationError as error:
            job.failures += 1
            wait = _backoff(job.failures, MAX_BACKOFF_SECONDS)
            logger.warning("%s: %s; looking again in %.0f s", key, error, wait)
            return self._clock() + wait, True
        except Exception:
            # A mistake in the code or an object nobody thought of: it must not stop the other jobs.
            job.failures += 1
            wait = _backoff(job.failures, MAX_BACKOFF_AFTER_MISTAKE_SECONDS)
            logger.exception("%s: cannot be settled; looking again in %.0f s", key, wait)
            return self._clock() + wait, True
        job.failures = 0
        return None if wake_at is None else wake_at.timestamp(), False

    def _done(self, key: JobKey, wake_at: float | None) -> None:
        with self._changed:
            job = self._jobs[key]
            job.running = False
            # A job that failed waits, whatever was told of it meanwhile: its failure would only come again.
            if job.asked_again and not job.failures:
                self._line_up(key, job)
            known, job.wake_at = job.wake_at, wake_at
            if wake_at is not None and wake_at != known:
                heapq.heappush(self._wakes, (wake_at, str(key), key))
            # The thread that wakes jobs waits for the earliest time it knew.
            self._changed.notify_all()

    def _line_up(self, key: JobKey, job: _Job) -> None:
        job.waiting = True
        self._ready.append(key)
        self._work_there.notify()

    def _wake(self) -> None:
        with self._changed:
            while not self._stopping:
                now = self._clock()
                while self._wakes and self._wakes[0][0] <= now:
                    wake_at, _, key = heapq.heappop(self._wakes)
                    job = self._jobs.get(key)
                    if job is None or job.wake_at != wake_at:
                        continue
                    job.wake_at = None
                    if not job.running and not job.waiting:
                        self._line_up(key, job)
                ahead = self._wakes[0][0] - now if self._wakes else MAX_SLEEP_SECONDS
                self._changed.wait(min(ahead, MAX_SLEEP_SECONDS))


def _backoff(failures: int, longest_seconds: float) -> float:
    wait = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 20), longest_seconds)
    # Jobs that failed together do not all come back at once.
    return wait * random.uniform(1 - BACKOFF_SPREAD, 1 + BACKOFF_SPREAD)  # noqa: S311  nothing secret depends on it
