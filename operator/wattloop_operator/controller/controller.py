"""The threads of an operator that leads: watches, work queue, resync and policy statuses.

A controller starts once; when it ends, the process ends.
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Sequence

import kopf

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.gpu_power_policies import UnreadablePolicyError
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import WatchedKind
from wattloop_operator.cluster.informer.resync import Resync
from wattloop_operator.cluster.output_collector import OutputCollector
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 15.0
POLICY_STATUS_SECONDS = 15.0
PLAN_STATUS_SECONDS = 10.0
DISCOVERY_SECONDS = 1.0
OUTPUT_SECONDS = 1.0


class Controller:
    """The threads of a leading operator.

    Args:
        registry: kopf's handlers.
        settings: kopf's settings.
        work_queue: Reconciles jobs; the dispatcher starts it when all objects have been listed.
        dispatcher: Receives watch events.
        api: The API server, for resyncs.
        heartbeat: Called with a kind whose watch has missed nothing.
        changes_missed: Called with a kind and the number of jobs with a change that its watch
            missed.
        resync_seconds: Interval of resyncs.
        output: Reads the logs of trainings; None: they are not read.
        write_policy_statuses: Brings the status of every GPUPowerPolicy up to date.
        write_frequency_plans: Brings FrequencyPlans and their statuses up to date; None: there are none.
        namespaces: The watched namespaces; empty: all.
        returned_namespace: Returns a further namespace that has become readable; empty: none.
        watch_problem: Says which watch has ended although its thread lives; empty: none.
        connection_problem: Says why the operator can not act now; empty: it can.
    """

    def __init__(
        self,
        *,
        registry: kopf.OperatorRegistry,
        settings: kopf.OperatorSettings,
        work_queue: WorkQueue,
        dispatcher: EventDispatcher,
        api: ClusterApi,
        heartbeat: Callable[[str], None],
        changes_missed: Callable[[str, int], None],
        resync_seconds: int,
        write_policy_statuses: Callable[[], object],
        output: OutputCollector | None = None,
        write_frequency_plans: Callable[[], object] | None = None,
        namespaces: Sequence[str] = (),
        returned_namespace: Callable[[], str] = lambda: "",
        watch_problem: Callable[[], str] = lambda: "",
        connection_problem: Callable[[], str] = lambda: "",
    ) -> None:
        self.connection_problem = connection_problem
        self._watch_problem = watch_problem
        self._namespaces = namespaces
        self._find_returned_namespace = returned_namespace
        self._returned_namespace = ""
        self._registry = registry
        self._settings = settings
        self._work_queue = work_queue
        self._dispatcher = dispatcher
        self._api = api
        self._heartbeat = heartbeat
        self._changes_missed = changes_missed
        self._resync_seconds = resync_seconds
        self._stopping = threading.Event()
        self._output = output
        self._threads = [
            WatchedThread(self._watch, "watches"),
            WatchedThread(self._resync, "resync"),
            self._writer("policy-statuses", "GPUPowerPolicy statuses", write_policy_statuses, POLICY_STATUS_SECONDS),
        ]
        if output is not None:
            self._threads.append(WatchedThread(self._collect_output, "training-output"))
        if write_frequency_plans is not None:

            def write_plans() -> None:
                if dispatcher.synced:
                    write_frequency_plans()

            self._threads.append(self._writer("frequency-plans", "FrequencyPlans", write_plans, PLAN_STATUS_SECONDS))

    def start(self) -> None:
        """Start the watches; the first complete listing starts the work queue."""
        for kind in self._dispatcher.kinds:
            self._heartbeat(kind.resource.kind)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the running reconciliations and write nothing more, so that another operator may lead."""
        for thread in self._threads:
            thread.release()
        self._stopping.set()
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
        return self._watch_problem()

    def enqueue(self, key: JobKey) -> None:
        """Reconcile a job soon."""
        self._work_queue.add(key)

    @property
    def queue_depth(self) -> int:
        """Number of jobs that wait for a worker."""
        return self._work_queue.depth

    def _watch(self) -> None:
        # kopf reads the server's discovery once, and never watches a kind that is missing then.
        if not self._await_discovery():
            return
        kopf.run(
            registry=self._registry,
            settings=self._settings,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            standalone=True,
            stop_flag=self._stopping,
            # kopf's default contains the user's name, and a container's user may have none. The
            # type is a private NewType of str.
            identity=platform.node(),  # type: ignore[arg-type]
        )

    def _await_discovery(self) -> bool:
        """Wait until the API server lists all kinds; returns False if the controller is stopped before."""
        logged = ""
        while True:
            try:
                missing = [kind.resource for kind in self._dispatcher.kinds if not self._api.lists(kind.resource)]
                problem = ", ".join(f"{each.plural} of {each.api_version}" for each in missing)
            except (OperationError, RejectedError) as error:
                problem = str(error)
            if not problem:
                return True
            if problem != logged:
                logger.warning("the watches wait: the API server does not list %s", problem)
            logged = problem
            if self._stopping.wait(DISCOVERY_SECONDS):
                return False

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
            self._returned_namespace = self._find_returned_namespace()

    def _resync_kind(self, kind: WatchedKind) -> None:
        jobs = Resync(self._api, kind, lambda seconds: not self._stopping.wait(seconds), self._namespaces).run()
        if jobs:
            self._changes_missed(kind.resource.kind, len(jobs))
        else:
            self._heartbeat(kind.resource.kind)
        for job in jobs:
            self._work_queue.add(job)

    def _writer(self, name: str, what: str, write: Callable[[], object], seconds: float) -> WatchedThread:
        return WatchedThread(lambda: self._write_regularly(what, write, seconds), name)

    def _write_regularly(self, what: str, write: Callable[[], object], seconds: float) -> None:
        logged = ""
        while True:
            try:
                write()
            except Exception as error:
                # Training does not depend on what is written; an unexpected error is logged with its traceback.
                expected = isinstance(error, OperationError | RejectedError | UnreadablePolicyError)
                if str(error) != logged:
                    logger.warning("%s are not up to date: %s", what, error, exc_info=not expected)
                logged = str(error)
            else:
                logged = ""
            if self._stopping.wait(seconds):
                return

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
