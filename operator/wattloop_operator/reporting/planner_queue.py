"""Which pipeline is planned next: one at a time, fair between namespaces and jobs, and by one replica alone.

A plan takes seconds, or minutes for a pipeline of many instructions, and every replica sees that it is needed. So a
replica claims the profile in the store before it plans, and renews the claim meanwhile. The claim of a replica that
has died expires, and the next report has another one plan.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Protocol

from wattloop.errors import OperationError
from wattloop.threads import TaskThread, WatchedThread
from wattloop_operator.reconcile.pipeline.held_bytes import request_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest

CLAIM_SECONDS = 60.0
RENEWAL_SECONDS = 15.0
# After so long half of the time that a planner worked for a namespace or a job is forgotten.
HALF_LIFE_SECONDS = 600.0
MIN_REMEMBERED_SECONDS = 0.1
# The reports of a job beyond these ask again.
MAX_WAITING_TASKS = 256
MAX_WAITING_BYTES = 64 * 1024**2

logger = logging.getLogger(__name__)

Plan = Callable[[PlanningRequest, datetime], PipelineFrontier]
Start = Callable[[Callable[[], None]], object]


class Claims(Protocol):
    """Claims profiles for one replica; see `wattloop_operator.store.pipeline_store.Pipelines`."""

    def claim_planning(self, profile_id: int, planner: str, now: datetime, until: datetime) -> datetime | None:
        """Claim a profile, or renew the claim; returns None, or else until when another planner has claimed it.

        Raises:
            OperationError: The database failed.
        """
        ...

    def release_planning(self, profile_id: int, planner: str) -> None:
        """End a claim.

        Raises:
            OperationError: The database failed.
        """
        ...


@dataclass(frozen=True)
class PlanningTask:
    """A profile that waits for the planner.

    Attributes:
        namespace: Namespace of the job.
        job_uid: The job; a later task of a job replaces one that waits.
        profile_id: The profile in the store.
        request: What to plan.
        deliver: Called with the frontier.
    """

    namespace: str
    job_uid: str
    profile_id: int
    request: PlanningRequest
    deliver: Callable[[PipelineFrontier], None]


class PlannerUse:
    """The seconds that the planner lately worked for each namespace and job. Not thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        """Count time that the planner worked for a namespace or a job."""
        self._decay()
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def of(self, name: str) -> float:
        """The seconds lately."""
        self._decay()
        return self._seconds.get(name, 0.0)

    def _decay(self) -> None:
        now = self._clock()
        rest = math.exp2(-max(now - self._at, 0.0) / HALF_LIFE_SECONDS)
        self._at = now
        left = {name: seconds * rest for name, seconds in self._seconds.items()}
        self._seconds = {name: seconds for name, seconds in left.items() if seconds >= MIN_REMEMBERED_SECONDS}


def next_task(waiting: Mapping[str, PlanningTask], use: PlannerUse) -> PlanningTask:
    """The task of the namespace, and in it of the job, that the planner has lately worked least for."""
    return min(waiting.values(), key=lambda task: (use.of(task.namespace), use.of(task.job_uid)))


class PlannerQueue:
    """Plans one profile after another. Thread-safe.

    Args:
        plan: Plans a pipeline.
        claims: The claims of all replicas.
        utc_now: The time, with a time zone.
        clock: Monotonic seconds.
        start: Has a function called later, one at a time; None: in a thread.
    """

    def __init__(
        self,
        plan: Plan,
        claims: Claims,
        utc_now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        *,
        start: Start | None = None,
    ) -> None:
        self._plan = plan
        self._claims = claims
        self._utc_now = utc_now
        self._clock = clock
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: WatchedThread | None = None
        self._start = start or self._start_in_thread
        self._lock = threading.Lock()
        self._use = PlannerUse(clock)
        self._waiting: dict[str, PlanningTask] = {}
        self._planned: PlanningTask | None = None
        self._elsewhere: dict[str, datetime] = {}
        self._ending = False
        self.name = secrets.token_hex(16)

    def offer(self, task: PlanningTask) -> None:
        """Have a profile planned, unless it waits, is planned now, or another replica plans it."""
        with self._lock:
            if self._is_full(task) or self._ending or self._knows(task.job_uid, task.request.profile_digest):
                return
            self._waiting[task.job_uid] = task
        self._start(self._run_next)

    def _is_full(self, task: PlanningTask) -> bool:
        """Whether a task waits outside, with its next report: those of the queue hold too much memory."""
        others = [each for job_uid, each in self._waiting.items() if job_uid != task.job_uid]
        held = sum(request_bytes(each.request) for each in (*others, task))
        return len(others) >= MAX_WAITING_TASKS or (bool(others) and held > MAX_WAITING_BYTES)

    def knows(self, job_uid: str, digest: str) -> bool:
        """Whether a profile of a job waits, is planned now, or is planned by another replica."""
        with self._lock:
            return self._knows(job_uid, digest)

    def _knows(self, job_uid: str, digest: str) -> bool:
        now = self._utc_now()
        self._elsewhere = {known: until for known, until in self._elsewhere.items() if until > now}
        tasks = (self._waiting.get(job_uid), self._planned)
        return digest in self._elsewhere or any(task and task.request.profile_digest == digest for task in tasks)

    def delivered(self, digest: str) -> None:
        """A frontier that was given to `deliver` is stored, or lost: the profile may be planned again."""
        with self._lock:
            if self._planned is not None and self._planned.request.profile_digest == digest:
                self._planned = None

    def close(self) -> None:
        """Start nothing more. What is being planned is planned by another replica, or by the next process."""
        with self._lock:
            self._ending, task = True, self._planned
            self._waiting.clear()
            if self._thread is not None:
                self._thread.release()
        self._calls.put(self._run_next)  # wakes the thread, which ends
        if task is not None:
            try:
                self._claims.release_planning(task.profile_id, self.name)
            except OperationError as error:
                logger.warning("a claim of this replica ends after %g s: %s", CLAIM_SECONDS, error)

    def _start_in_thread(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None:
                # A daemon: the operator does not wait for it at its end, and the planner's process ends with it.
                self._thread = WatchedThread(self._run, "pipeline-planner")
                self._thread.start()
        self._calls.put(call)

    def _run(self) -> None:
        while not self._ending:
            self._calls.get()()

    def _run_next(self) -> None:
        with self._lock:
            if self._ending or not self._waiting:
                return
            task = next_task(self._waiting, self._use)
            del self._waiting[task.job_uid]
            self._planned = task
        began, is_delivered = self._clock(), False
        try:
            if self._claim(task):
                frontier = self._planned_while_claimed(task)
                task.deliver(frontier)
                is_delivered = True
        except OperationError as error:
            logger.warning("the plan of job %s is computed again: %s", task.job_uid, error)
        except Exception:  # the next report starts it again
            logger.exception("unexpected failure of the planner for job %s", task.job_uid)
        finally:
            with self._lock:
                for name in (task.namespace, task.job_uid):
                    self._use.add(name, self._clock() - began)
                if not is_delivered:
                    self._planned = None

    def _claim(self, task: PlanningTask) -> bool:
        now = self._utc_now()
        held_until = self._claims.claim_planning(
            task.profile_id, self.name, now, now + timedelta(seconds=CLAIM_SECONDS)
        )
        if held_until is not None:
            with self._lock:
                self._elsewhere[task.request.profile_digest] = held_until
        return held_until is None

    def _planned_while_claimed(self, task: PlanningTask) -> PipelineFrontier:
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(RENEWAL_SECONDS) and not self._ending:
                try:
                    self._claim(task)
                except OperationError as error:
                    logger.warning("a claim is not renewed now: %s", error)

        renewal = TaskThread(renew, "pipeline-planner-claim")
        renewal.start()
        try:
            return self._plan(task.request, self._utc_now())
        finally:
            ended.set()
            renewal.join()
