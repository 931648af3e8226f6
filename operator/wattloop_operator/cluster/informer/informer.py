"""The informer of one kind: it lists the objects, watches them from there, and lists them again after a gap.

It is the reflector of client-go. What it receives goes to the dispatcher, which stores it and enqueues the job. kopf
watches the kinds that people write; of those an informer only lists the objects, before kopf does. Lists and events are
parsed with bounds, and an object beyond one is refused alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError
from wattloop_operator.cluster.api_transport import Request, StatusError, Watch
from wattloop_operator.cluster.bounded_json import UnreadableError
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_bytes import Key
from wattloop_operator.cluster.informer.object_cache import identity
from wattloop_operator.cluster.informer.stored_parts import CHANGES, Body, read_event, read_list
from wattloop_operator.cluster.informer.watched_kinds import WatchedKind
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

OpenWatch = Callable[[Request], Watch]
"""Opens a watch; see `HttpTransport.watch`."""

# Within the five minutes for which the API server keeps the versions that a watch can resume from.
WATCH_SECONDS = 300
RETRY_SECONDS = 2.0
# With the interval of the retries, readiness fails within 10 s.
MAX_FAILING_SECONDS = 6.0
GONE = 410
# Pages of large objects are not in memory together, and each is small.
PAGE_OBJECTS = 50
_one_page = threading.Lock()


class ExpiredError(Exception):
    """The API server no longer has the version that a watch is to resume from, or has ended it by an error."""


class Informer:
    """Lists and watches the objects of one kind, in one namespace or in all.

    Args:
        api: Lists objects.
        open_watch: Opens watches.
        kind: The kind.
        dispatcher: Receives the objects.
        namespace: The namespace; empty: all.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        api: ClusterApi,
        open_watch: OpenWatch,
        kind: WatchedKind,
        dispatcher: EventDispatcher,
        *,
        namespace: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self.path = kind.resource.path(namespace)
        self._api = api
        self._open_watch = open_watch
        self._dispatcher = dispatcher
        self._namespace = namespace
        self._clock = clock
        self._version = ""
        self._failing_since: float | None = None
        self._problems = ProblemLog(logger)
        self._stopping = threading.Event()
        self._watch: Watch | None = None

    def run(self) -> None:
        """List and watch until `stop` is called."""
        while not self._stopping.is_set():
            try:
                self._version = self._version or self.list_objects()
                self._watch_objects()
            except ExpiredError as error:
                logger.info("%s: listed again: %s", self.path, error)
                self._version = ""
            except (OperationError, RejectedError, NotFoundError) as error:
                self._record_failure(str(error))
            except Exception:  # the objects are listed again
                logger.exception("%s: unexpected failure; listed again in %.0f s", self.path, RETRY_SECONDS)
                self._version = ""
                self._record_failure("unexpected failure")

    def stop(self) -> None:
        """End the watch, and let `run` return."""
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.end()

    def problem(self) -> str:
        """Why the operator cannot follow the kind now; empty if it can, or has not listed it yet."""
        since = self._failing_since
        seconds = 0.0 if since is None else self._clock() - since
        if seconds <= MAX_FAILING_SECONDS:
            return ""
        return f"the API server has not served the watch of {self.kind.resource.kind} ({self.path}) for {seconds:.0f} s"

    def list_objects(self) -> str:
        """Receive all objects, and remove those that are gone; returns the version from which a watch follows.

        Raises:
            OperationError: The API server does not answer now.
            RejectedError: It rejects the request.
            NotFoundError: It does not have the kind.
        """
        listed: set[Key] = set()

        def receive(body: Body) -> None:
            listed.add(identity(body)[0])
            self._dispatcher.on_read(self.kind, body)

        pages = self._api.pages(
            self.kind.resource,
            namespace=self._namespace,
            labels=self.kind.labels,
            parse=lambda data: read_list(data, self.kind.part, receive),
            max_objects=PAGE_OBJECTS,
        )
        version = ""
        while True:
            with _one_page:
                page = next(pages, None)
            if page is None:
                break
            self._record_success()
            version = str(page["metadata"]["resourceVersion"])
        for gone in self.kind.missing(listed, self._namespace, int(version)):
            self._dispatcher.on_missing(self.kind, gone)
        self._dispatcher.on_listed(self.path)
        return version

    def _watch_objects(self) -> None:
        """Receive changes from the known version on, until the API server ends the watch.

        Raises:
            ExpiredError: The objects must be listed again.
            OperationError: The watch cannot be opened now, or is interrupted.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        query |= {"labelSelector": self.kind.labels} if self.kind.labels else {}
        try:
            watch = self._open_watch(Request("GET", self.path, query | {"resourceVersion": self._version}))
        except StatusError as error:
            if error.status == GONE:
                raise ExpiredError(error.message) from error
            raise RejectedError(str(error)) from error
        self._watch = watch
        self._record_success()
        if self._stopping.is_set():
            watch.end()
        for line in watch.lines():
            self._receive(line)

    def _receive(self, line: bytes) -> None:
        """Pass the object of an event to the dispatcher, and remember its version."""
        try:
            event_type, found = read_event(line, self.kind.part)
            if event_type in CHANGES:
                self._dispatcher.on_event(self.kind, event_type, found)
        except UnreadableError as error:
            logger.warning("%s: an event of %d bytes is passed over: %s", self.path, len(line), error)
            return
        except Exception:  # the watch goes on, and the next resync fetches the object
            logger.exception("%s: unexpected failure at an event of %d bytes", self.path, len(line))
            return
        if event_type == "ERROR":
            raise ExpiredError(f"the API server has ended the watch: {found}")
        metadata = found.get("metadata") if isinstance(found, dict) else None
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        self._version = str(version or self._version)

    def _record_success(self) -> None:
        self._failing_since = None
        self._problems.ended(self.path)

    def _record_failure(self, problem: str) -> None:
        if self._stopping.is_set():
            return
        if self._failing_since is None:
            self._failing_since = self._clock()
        self._problems.met(self.path, f"{problem}; retried every {RETRY_SECONDS:.0f} s")
        self._stopping.wait(RETRY_SECONDS)
