"""The threads of an operator that leads, and the leading controller as request threads see it.

A controller starts once; when it ends, the process ends. The reporting API, health and metrics are served before this
operator leads, too. They share one `LeaderState`; acquiring the lead changes it in one assignment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.informer.informer import Informer, Resync
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, WatchedKind
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import Backend
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.telemetry.health import WatchHeartbeat
from wattloop_operator.telemetry.operator_metrics import Metrics

if TYPE_CHECKING:
    # An operator that does not lead saves the import of kopf.
    from wattloop_operator.controller.kopf_operator import KopfOperator

logger = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 15.0
# Time between two runs of a task, however often its objects change.
MIN_SECONDS = 1.0


class RepeatedTask:
    """Brings something up to date again and again; a problem is logged when it changes.

    Args:
        what: What is brought up to date, for messages.
        ended: Called at the end of the thread.
    """

    def __init__(
        self,
        name: str,
        what: str,
        run: Callable[[], object],
        seconds: float,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self.thread = WatchedThread(self._run, name)
        self._what = what
        self._task = run
        self._ended = ended
        self._seconds = seconds
        self._changed = threading.Event()
        self._stopping = threading.Event()

    def wake(self) -> None:
        """Run it soon: an object has changed."""
        self._changed.set()

    def stop(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._changed.set()

    def _run(self) -> None:
        logged = ""
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                try:
                    self._task()
                except Exception as error:
                    # Training does not depend on what is written; an unexpected error is logged with its traceback.
                    expected = isinstance(error, OperationError | RejectedError)
                    if str(error) != logged:
                        logger.warning("%s are not up to date: %s", self._what, error, exc_info=not expected)
                    logged = str(error)
                else:
                    logged = ""
                if not self._stopping.wait(MIN_SECONDS):
                    self._changed.wait(self._seconds - MIN_SECONDS)
        finally:
            self._ended()


class Controller:
    """The threads of a leading operator.

    Args:
        kopf_operator: Watches what people write.
        informers: List and watch what the operator makes, and what follows from it.
        work_queue: Reconciles jobs; the dispatcher starts it when all objects have been listed.
        dispatcher: Receives objects and events.
        api: The API server, for resyncs.
        heartbeat: Gets the signs of life of watches.
        metrics: Counts the jobs with a change that a watch missed.
        tasks: Write the statuses of what is no job, read logs, and look for attempts that end.
        namespaces: The watched namespaces; empty: all.
        returned_namespace: Returns a further namespace that has become readable; empty: none.
        lease_problem: Says why the operator may write nothing now; empty: it may.
    """

    def __init__(
        self,
        *,
        kopf_operator: KopfOperator,
        informers: Sequence[Informer],
        work_queue: WorkQueue,
        dispatcher: EventDispatcher,
        api: ClusterApi,
        heartbeat: WatchHeartbeat,
        metrics: Metrics,
        resync_seconds: int,
        tasks: Sequence[RepeatedTask] = (),
        namespaces: Sequence[str] = (),
        returned_namespace: Callable[[], str] = str,
        lease_problem: Callable[[], str] = str,
    ) -> None:
        self._kopf_operator = kopf_operator
        self._informers = informers
        self._work_queue = work_queue
        self._dispatcher = dispatcher
        self._api = api
        self._heartbeat = heartbeat
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._namespaces = namespaces
        self._tasks = tasks
        self._find_returned_namespace = returned_namespace
        self._returned_namespace = ""
        self._lease_problem = lease_problem
        self._stopping = threading.Event()
        self._threads = [
            WatchedThread(kopf_operator.run, "watches"),
            *(WatchedThread(each.run, f"informer {each.path}") for each in informers),
            WatchedThread(self._resync, "resync"),
            *(each.thread for each in tasks),
        ]

    def start(self) -> None:
        """Start the threads; when all objects have been listed, the dispatcher starts the work queue."""
        for kind in self._dispatcher.kinds:
            self._heartbeat.beat(kind.resource.kind)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the running reconciliations and write nothing more, so that another operator may lead."""
        for thread in self._threads:
            thread.release()
        self._stopping.set()
        self._kopf_operator.stop()
        for informer in self._informers:
            informer.stop()
        for task in self._tasks:
            task.stop()
        if not self._work_queue.stop(STOP_TIMEOUT_SECONDS):
            logger.warning(
                "a reconciliation still runs after %.0f s; the next leader continues it", STOP_TIMEOUT_SECONDS
            )

    def join(self) -> None:
        """Wait until the other threads have ended, too; call it after `stop`."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(STOP_TIMEOUT_SECONDS)

    def problem(self) -> str:
        """Why the process must restart, besides a thread that has ended; empty if it need not."""
        if self._stopping.is_set():
            return ""
        if self._returned_namespace:
            return f"the namespace {self._returned_namespace} is readable now; restarting to watch it"
        return self._kopf_operator.problem()

    def connection_problem(self) -> str:
        """Why the operator cannot act now; empty if it can."""
        return next((found for each in self._informers if (found := each.problem())), "") or self._lease_problem()

    def enqueue(self, key: JobKey) -> None:
        """Reconcile a job soon."""
        self._work_queue.add(key)

    @property
    def queue_depth(self) -> int:
        """Number of jobs that wait for a worker."""
        return self._work_queue.depth

    def _resync(self) -> None:
        while not self._stopping.wait(self._resync_seconds):
            for kind in self._dispatcher.kinds:
                try:
                    self._resync_kind(kind)
                except (OperationError, RejectedError) as error:
                    logger.warning("%s: the resync failed: %s", kind.resource.kind, error)
                except Exception:  # the next resync may succeed, and other kinds are compared
                    logger.exception("%s: unexpected failure of the resync", kind.resource.kind)
            for key in self._dispatcher.jobs():
                self._work_queue.add(key)
            self._kopf_operator.watch_again()
            self._returned_namespace = self._find_returned_namespace()

    def _resync_kind(self, kind: WatchedKind) -> None:
        jobs = Resync(self._api, kind, lambda seconds: not self._stopping.wait(seconds), self._namespaces).run()
        if jobs:
            self._metrics.changes_missed(kind.resource.kind, len(jobs))
        else:
            self._heartbeat.beat(kind.resource.kind)
        for key in jobs:
            self._dispatcher.enqueue(kind, key)


class LeaderState:
    """The controller and the back end of an operator that leads; neither until it does. Thread-safe."""

    def __init__(self) -> None:
        self._leading: tuple[Controller, Backend] | None = None
        self._candidate_problem: Callable[[], str] = str

    def stand_for_election(self, problem: Callable[[], str]) -> None:
        """Record that this operator is a candidate.

        `problem`: returns why a candidate cannot reach the API server; empty if it can.
        """
        self._candidate_problem = problem

    def lead(self, controller: Controller, backend: Backend) -> None:
        """Record that this operator leads."""
        self._leading = controller, backend

    @property
    def controller(self) -> Controller | None:
        """The controller; None while this operator does not lead."""
        return None if self._leading is None else self._leading[0]

    def enqueue(self, key: JobKey) -> None:
        """Reconcile a job soon; without effect on a replica that does not lead."""
        controller = self.controller
        if controller is not None:
            controller.enqueue(key)

    def review(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        """The progress with the policy's new bounds; unchanged on a replica that does not lead."""
        if self._leading is None:
            return progress
        _, backend = self._leading
        key = JobKey(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
        return review_cost_limit(lambda: backend.snapshot(key), recurrence, progress)

    def problem(self) -> str:
        """Why the process must restart; empty if it need not."""
        controller = self.controller
        return "" if controller is None else controller.problem()

    def connection_problem(self) -> str:
        """Why this operator cannot use the API server now, although it need not restart; empty if it can.

        A leader cannot act then. No replica can review a token or store a report.
        """
        controller = self.controller
        return self._candidate_problem() if controller is None else controller.connection_problem()

    @property
    def queue_depth(self) -> int:
        """Number of jobs that wait for a worker."""
        controller = self.controller
        return 0 if controller is None else controller.queue_depth
