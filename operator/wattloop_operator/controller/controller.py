"""The threads of an operator that leads: watches, informers, work queue, resync and statuses.

A controller starts once; when it ends, the process ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.informer import Informer
from wattloop_operator.cluster.informer.resync import Resync
from wattloop_operator.cluster.informer.watched_kinds import WatchedKind
from wattloop_operator.cluster.output_collector import OutputCollector
from wattloop_operator.controller.kopf_operator import KopfOperator
from wattloop_operator.controller.repeated_task import RepeatedTask
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 15.0
OUTPUT_SECONDS = 1.0


class Controller:
    """The threads of a leading operator.

    Args:
        kopf_operator: Watches what people write.
        informers: List and watch what the operator makes, and what follows from it.
        work_queue: Reconciles jobs; the dispatcher starts it when all objects have been listed.
        dispatcher: Receives objects and events.
        api: The API server, for resyncs.
        heartbeat: Called with a kind whose watch has missed nothing.
        changes_missed: Called with a kind and the number of jobs with a change that its watch
            missed.
        resync_seconds: Interval of resyncs.
        writers: Write the statuses of what is no job.
        output: Reads the logs of trainings; None: they are not read.
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
        heartbeat: Callable[[str], None],
        changes_missed: Callable[[str, int], None],
        resync_seconds: int,
        writers: Sequence[RepeatedTask] = (),
        output: OutputCollector | None = None,
        namespaces: Sequence[str] = (),
        returned_namespace: Callable[[], str] = lambda: "",
        lease_problem: Callable[[], str] = lambda: "",
    ) -> None:
        self._kopf_operator = kopf_operator
        self._informers = informers
        self._writers = writers
        self._lease_problem = lease_problem
        self._namespaces = namespaces
        self._find_returned_namespace = returned_namespace
        self._returned_namespace = ""
        self._work_queue = work_queue
        self._dispatcher = dispatcher
        self._api = api
        self._heartbeat = heartbeat
        self._changes_missed = changes_missed
        self._resync_seconds = resync_seconds
        self._stopping = threading.Event()
        self._output = output
        self._threads = [
            WatchedThread(kopf_operator.run, "watches"),
            *(WatchedThread(each.run, f"informer {each.path}") for each in informers),
            WatchedThread(self._resync, "resync"),
            *(each.thread for each in writers),
        ]
        if output is not None:
            self._threads.append(WatchedThread(self._collect_output, "training-output"))

    def start(self) -> None:
        """Start the threads; when all objects have been listed, the dispatcher starts the work queue."""
        for kind in self._dispatcher.kinds:
            self._heartbeat(kind.resource.kind)
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
        for writer in self._writers:
            writer.stop()
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
            self._changes_missed(kind.resource.kind, len(jobs))
        else:
            self._heartbeat(kind.resource.kind)
        for key in jobs:
            self._dispatcher.enqueue(kind, key)

    def _collect_output(self) -> None:
        assert self._output is not None
        try:
            while not self._stopping.wait(OUTPUT_SECONDS):
                try:
                    if self._dispatcher.synced:
                        self._output.collect()
                except Exception:  # an error of one attempt must not end the reading of the others' logs
                    logger.exception("unexpected failure while logs are read; retrying")
        finally:
            self._output.stop()
