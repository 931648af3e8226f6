"""The work queue: jobs that changed, jobs whose time has come, and jobs to retry after a failure.

One worker at a time reconciles a job; events that arrive meanwhile cause one more reconciliation. A job that fails is
retried with exponential backoff. Namespaces take turns, so that the jobs of one wait for one of another at most.
"""

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
from wattloop.threads import WatchedThread
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

Reconcile = Callable[[JobKey], datetime | None]

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
# After so many failures in a row events no longer cut the backoff short: they may stem from the
# job's own retries.
MAX_EAGER_RETRIES = 3
MAX_BACKOFF_AFTER_BUG_SECONDS = 600.0
BACKOFF_JITTER = 0.2
# A change of the wall clock is noticed within this time.
MAX_SLEEP_SECONDS = 15.0


@dataclass
class _Job:
    queued: bool = False
    running: bool = False
    added_again: bool = False
    wake_at: float | None = None
    failures: int = 0


class WorkQueue:
    """Reconciles jobs in worker threads.

    Args:
        reconcile: Reconciles one job and returns when to reconcile it again, with a time zone.
        clock: Seconds since the epoch; the clock of the times that `reconcile` returns.
        reconciled: Called after each reconciliation with the job and its duration in seconds.
        failed: Called after each reconciliation that failed.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        clock: Callable[[], float] = time.time,
        reconciled: Callable[[JobKey, float], None] = lambda _key, _seconds: None,
        failed: Callable[[JobKey], None] = lambda _key: None,
    ) -> None:
        self._reconcile = reconcile
        self._clock = clock
        self._reconciled = reconciled
        self._failed = failed
        lock = threading.Lock()
        # Workers wait on one condition and the timer thread on another: notify() wakes a single
        # thread, which must be a worker.
        self._ready_changed = threading.Condition(lock)
        self._wakes_changed = threading.Condition(lock)
        self._jobs: dict[JobKey, _Job] = {}
        # By namespace; the first one is next.
        self._ready: dict[str, deque[JobKey]] = {}
        self._wakes: list[tuple[float, str, JobKey]] = []
        self._stopping = False
        self._threads = [WatchedThread(self._work, f"reconcile-{number}") for number in range(workers)]
        self._threads.append(WatchedThread(self._run_timer, "timer"))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Finish the running reconciliations and start no more; returns whether all threads ended in time."""
        for thread in self._threads:
            thread.release()
        with self._wakes_changed:
            self._stopping = True
            self._wakes_changed.notify_all()
            self._ready_changed.notify_all()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def add(self, key: JobKey) -> None:
        """Reconcile a job soon; after several failures in a row, when its backoff ends."""
        with self._wakes_changed:
            job = self._jobs.setdefault(key, _Job())
            if job.running:
                job.added_again = True
            elif not job.queued and (job.failures < MAX_EAGER_RETRIES or self._clock_went_back(job)):
                self._enqueue(key, job)

    def forget(self, key: JobKey) -> None:
        """Drop a deleted job, unless it is queued or running."""
        with self._wakes_changed:
            job = self._jobs.get(key)
            if job is not None and not job.running and not job.queued:
                del self._jobs[key]

    @property
    def depth(self) -> int:
        """Number of jobs that wait for a worker."""
        with self._ready_changed:
            return sum(map(len, self._ready.values()))

    def _clock_went_back(self, job: _Job) -> bool:
        """Whether the clock was set back since the job failed, so that its backoff would take hours."""
        max_seconds = MAX_BACKOFF_AFTER_BUG_SECONDS * (1 + BACKOFF_JITTER)
        return job.wake_at is not None and job.wake_at - self._clock() > max_seconds

    def _work(self) -> None:
        while (key := self._next()) is not None:
            started = time.monotonic()
            wake_at, failed = self._reconcile_once(key)
            self._reconciled(key, time.monotonic() - started)
            if failed:
                self._failed(key)
            with self._wakes_changed:
                job = self._jobs[key]
                job.running = False
                # A failed job waits for its backoff, even if events arrived: it would only fail again.
                if job.added_again and not job.failures:
                    self._enqueue(key, job)
                known, job.wake_at = job.wake_at, wake_at
                if wake_at is not None and wake_at != known:
                    heapq.heappush(self._wakes, (wake_at, str(key), key))
                # The timer waits for the earliest time that it knew.
                self._wakes_changed.notify_all()

    def _next(self) -> JobKey | None:
        with self._ready_changed:
            while not self._ready and not self._stopping:
                self._ready_changed.wait()
            if self._stopping:
                return None
            namespace = next(iter(self._ready))
            waiting = self._ready.pop(namespace)
            key = waiting.popleft()
            if waiting:
                self._ready[namespace] = waiting
            job = self._jobs[key]
            job.queued, job.running, job.added_again = False, True, False
            return key

    def _reconcile_once(self, key: JobKey) -> tuple[float | None, bool]:
        job = self._jobs[key]
        try:
            wake_at = self._reconcile(key)
        except OperationError as error:
            job.failures += 1
            backoff = _backoff_seconds(job.failures, MAX_BACKOFF_SECONDS)
            logger.warning("%s: %s; retrying in %.0f s", key, error, backoff)
            return self._clock() + backoff, True
        except Exception:
            # A bug, or an object of an unexpected form: it must not stop the other jobs.
            job.failures += 1
            backoff = _backoff_seconds(job.failures, MAX_BACKOFF_AFTER_BUG_SECONDS)
            logger.exception("%s: reconciliation failed unexpectedly; retrying in %.0f s", key, backoff)
            return self._clock() + backoff, True
        job.failures = 0
        return None if wake_at is None else wake_at.timestamp(), False

    def _enqueue(self, key: JobKey, job: _Job) -> None:
        job.queued = True
        self._ready.setdefault(key.namespace, deque()).append(key)
        self._ready_changed.notify()

    def _run_timer(self) -> None:
        with self._wakes_changed:
            while not self._stopping:
                now = self._clock()
                while self._wakes and self._wakes[0][0] <= now:
                    wake_at, _, key = heapq.heappop(self._wakes)
                    job = self._jobs.get(key)
                    if job is None or job.wake_at != wake_at:
                        continue
                    job.wake_at = None
                    if not job.running and not job.queued:
                        self._enqueue(key, job)
                ahead = self._wakes[0][0] - now if self._wakes else MAX_SLEEP_SECONDS
                self._wakes_changed.wait(min(ahead, MAX_SLEEP_SECONDS))


def _backoff_seconds(failures: int, max_seconds: float) -> float:
    backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 20), max_seconds)
    # Jitter, so that jobs that failed together do not retry together.
    return backoff * random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)  # noqa: S311  not a secret
