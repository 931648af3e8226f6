"""What an operator does while it leads: watch, settle, compare. Begun once; when it ends, so does the process."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Sequence

import kopf
from kopf._core.engines.peering import Identity

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.gpu_power_policies import UnreadablePolicyError
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.resync import Resync
from wattloop_operator.controller.work_queue import WorkQueue

logger = logging.getLogger(__name__)

STOP_PATIENCE_SECONDS = 15.0
POLICY_STATUS_SECONDS = 15.0


class Controller:
    """The threads of a leading operator.

    Args:
        registry: kopf's handlers.
        settings: kopf's settings.
        work_queue: Settles jobs; it is started when everything has been listed.
        dispatcher: Takes in what is seen.
        api: The API server, for comparing.
        heartbeat: Is told that the watch of a kind is alive.
        missed: Is told how many jobs a watch of a kind has missed changes of.
        resync_seconds: How often what was seen is compared with what there is.
        write_policy_statuses: Brings the status of every GPUPowerPolicy up to date.
        namespaces: The namespaces that are watched; empty: all.
        returned: Gives a further namespace that can be watched now and could not before; empty: none.
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
        missed: Callable[[str, int], None],
        resync_seconds: int,
        write_policy_statuses: Callable[[], object],
        namespaces: Sequence[str] = (),
        returned: Callable[[], str] = lambda: "",
    ) -> None:
        self._namespaces = namespaces
        self._returned = returned
        self._returned_namespace = ""
        self._registry = registry
        self._settings = settings
        self._work_queue = work_queue
        self._dispatcher = dispatcher
        self._api = api
        self._heartbeat = heartbeat
        self._missed = missed
        self._resync_seconds = resync_seconds
        self._write_standings = write_policy_statuses
        self._stopping = threading.Event()
        self._kopf = threading.Thread(target=self._watch, name="kopf", daemon=True)
        self._comparing = threading.Thread(target=self._compare, name="compare", daemon=True)
        self._standing = threading.Thread(target=self._keep_policy_statuses, name="policies", daemon=True)
        self._began = False

    def begin(self) -> None:
        """Start to watch; what is watched starts the rest."""
        self._began = True
        for kind in self._dispatcher.kinds:
            self._heartbeat(kind.resource.kind)
        self._kopf.start()
        self._comparing.start()
        self._standing.start()

    def stop(self) -> None:
        """Finish what was begun and write nothing more, so that another operator may lead."""
        self._stopping.set()
        if not self._work_queue.stop(STOP_PATIENCE_SECONDS):
            logger.warning("a job was still being settled after %.0f s; the next leader goes on", STOP_PATIENCE_SECONDS)

    def await_end(self) -> None:
        """Wait until the watches have ended too, once the work was laid down."""
        for thread in (self._kopf, self._comparing, self._standing):
            if thread.ident is not None:
                thread.join(STOP_PATIENCE_SECONDS)

    def trouble(self) -> str:
        """What is wrong with its threads; empty: nothing is."""
        if self._stopping.is_set() or not self._began:
            return ""
        if self._returned_namespace:
            return f"the namespace {self._returned_namespace} can be read now, and is watched after a new start"
        for thread, what in (
            (self._kopf, "the watches have ended"),
            (self._comparing, "the comparison has ended"),
            (self._standing, "the writing of GPUPowerPolicies' statuses has ended"),
        ):
            if not thread.is_alive():
                return what
        if self._dispatcher.opened and not self._work_queue.alive:
            return "a worker has ended"
        return ""

    @property
    def waiting(self) -> int:
        """How many jobs wait for a worker."""
        return self._work_queue.waiting

    def _watch(self) -> None:
        kopf.run(
            registry=self._registry,
            settings=self._settings,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            standalone=True,
            stop_flag=self._stopping,
            # Its own would have the user's name in it; the user of a container has none.
            identity=Identity(platform.node()),
        )

    def _compare(self) -> None:
        while not self._stopping.wait(self._resync_seconds):
            for kind in self._dispatcher.kinds:
                try:
                    jobs = Resync(
                        self._api, kind, lambda seconds: not self._stopping.wait(seconds), self._namespaces
                    ).missed()
                except (OperationError, RejectedError) as error:
                    logger.warning("%s: could not be compared: %s", kind.resource.kind, error)
                    continue
                if jobs:
                    self._missed(kind.resource.kind, len(jobs))
                else:
                    self._heartbeat(kind.resource.kind)
                for job in jobs:
                    self._work_queue.ask(job)
            for key in self._dispatcher.jobs():
                self._work_queue.ask(key)
            self._returned_namespace = self._returned()

    def _keep_policy_statuses(self) -> None:
        told = ""
        while True:
            try:
                self._write_standings()
            except Exception as error:
                # Training goes on without these statuses; what nobody foresaw is told with its trace.
                foreseen = isinstance(error, OperationError | RejectedError | UnreadablePolicyError)
                if str(error) != told:
                    logger.warning("GPUPowerPolicies' statuses are not up to date: %s", error, exc_info=not foreseen)
                told = str(error)
            else:
                told = ""
            if self._stopping.wait(POLICY_STATUS_SECONDS):
                return
