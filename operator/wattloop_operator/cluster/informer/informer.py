"""The informer of one kind: it lists the objects, watches them from there, and lists them again after a gap.

It is the reflector of client-go. What it receives goes to the dispatcher, which stores it and enqueues the job. kopf
watches the kinds that people write; of those an informer only lists the objects, before kopf does. Lists and events are
parsed with bounds, and an object beyond one is refused alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError
from wattloop_operator.cluster.api_transport import Request, StatusError, UnreadableResponseError, Watch
from wattloop_operator.cluster.bounded_json import UnreadableError
from wattloop_operator.cluster.informer.object_cache import identity
from wattloop_operator.cluster.informer.object_store import CachedObject, Key
from wattloop_operator.cluster.informer.stored_parts import CHANGES, Body, metadata_part, read_event, read_list
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, WatchedKind
from wattloop_operator.domain.names import JobKey
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


@dataclass(eq=False)
class Informer:
    """Lists and watches the objects of one kind, in one namespace or in all.

    Attributes:
        api: Lists objects.
        open_watch: Opens watches.
        namespace: The namespace; empty: all.
        clock: Monotonic seconds.
    """

    api: ClusterApi
    open_watch: OpenWatch
    kind: WatchedKind
    dispatcher: EventDispatcher
    _: KW_ONLY
    namespace: str = ""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.path = self.kind.resource.path(self.namespace)
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
        seconds = 0.0 if since is None else self.clock() - since
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
            self.dispatcher.on_read(self.kind, body)

        pages = self.api.pages(
            self.kind.resource,
            namespace=self.namespace,
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
        for gone in self.kind.missing(listed, self.namespace, int(version)):
            self.dispatcher.on_missing(self.kind, gone)
        self.dispatcher.on_listed(self.path)
        return version

    def _watch_objects(self) -> None:
        """Receive changes from the known version on, until the API server ends the watch."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        query |= {"labelSelector": self.kind.labels} if self.kind.labels else {}
        try:
            watch = self.open_watch(Request("GET", self.path, query | {"resourceVersion": self._version}))
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
        try:
            event_type, found = read_event(line, self.kind.part)
            if event_type in CHANGES:
                self.dispatcher.on_event(self.kind, event_type, found)
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
            self._failing_since = self.clock()
        self._problems.met(self.path, f"{problem}; retried every {RETRY_SECONDS:.0f} s")
        self._stopping.wait(RETRY_SECONDS)


# An event that takes longer to arrive counts as missed.
GRACE_SECONDS = 5.0


class Resync:
    """A resync of one kind: fetches each object whose event is overdue.

    A watch can stop silently, and kopf lists again after a gap without telling which objects were deleted meanwhile.

    Args:
        wait: Waits for seconds; returns False to cancel the resync.
        namespaces: The watched namespaces; empty: all.
    """

    def __init__(
        self, api: ClusterApi, kind: WatchedKind, wait: Callable[[float], bool], namespaces: Sequence[str] = ()
    ) -> None:
        self._namespaces = kind.lists(namespaces)
        self._api = api
        self._kind = kind
        self._wait = wait

    def run(self) -> set[JobKey]:
        """Repair the cache; returns the jobs with a change that the watch missed.

        Raises:
            OperationError: The API server does not answer now.
        """
        kind = self._kind
        listed: dict[Key, Body] = {}
        deleted: list[CachedObject[Any]] = []
        for namespace in self._namespaces:
            items, list_version = self._api.list(
                kind.resource, namespace=namespace, labels=kind.labels, metadata_only=True, part=metadata_part
            )
            listed |= self._wanted(items)
            deleted += kind.missing(listed, namespace, int(list_version))
        late = {key for key, body in listed.items() if self._is_behind(body)}
        if not late and not deleted:
            return set()
        if not self._wait(GRACE_SECONDS):
            return set()
        late = {key for key in late if self._is_behind(listed[key])}
        deleted = [each for each in deleted if kind.object_store.get(each.key) is each]
        return self._repair(late | {each.key for each in deleted}, listed)

    def _is_behind(self, body: Body) -> bool:
        key, _, version = identity(body)
        return self._kind.object_store.known_version(key) < version

    def _wanted(self, items: Sequence[Body]) -> dict[Key, Body]:
        """The objects of a list that are stored. One that fails is as if it were not listed: a known one is fetched."""
        wanted: dict[Key, Body] = {}
        for each in items:
            try:
                if self._kind.wanted(each) and self._kind.has_room(each):
                    wanted[identity(each)[0]] = each
            except Exception:  # the other objects are compared
                namespace, name = (each["metadata"].get(part, "") for part in ("namespace", "name"))
                logger.exception(
                    "%s %s/%s: unexpected failure at a listed object", self._kind.resource.kind, namespace, name
                )
        return wanted

    def _repair(self, keys: set[Key], listed: Mapping[Key, Body]) -> set[JobKey]:
        jobs: set[JobKey] = set()
        for key in sorted(keys):
            before, body, problem = self._kind.object_store.get(key), None, None
            try:
                body = self._api.find(self._kind.resource, *key)
            except UnreadableResponseError as error:
                problem = error.problem
            try:
                if problem is None:
                    self._store(key, before, body, jobs)
                elif key in listed and self._kind.refuse(listed[key], problem):
                    jobs.add(self._kind.job_of(listed[key]))
            except ValidationError as error:
                # The dispatcher has warned of it.
                logger.debug("%s: %s", key, error)
            except Exception:  # the other objects are repaired
                logger.exception("%s %s/%s: unexpected failure at a missed change", self._kind.resource.kind, *key)
        return jobs

    def _store(self, key: Key, before: CachedObject[Any] | None, body: Body | None, jobs: set[JobKey]) -> None:
        """Store a fetched object, or remove one that is gone; adds its job to `jobs` if that changes anything."""
        deleted = before is not None and (body is None or identity(body)[1] != before.uid)
        if before is not None and deleted and self._kind.object_store.remove(key, before.uid):
            # Only Jobs and recurrences get here; the name of their group is that of the job.
            jobs.add(JobKey(key[0], before.group[1]))
        if body is None:
            return
        job = self._kind.job_of(body)
        if self._kind.put(body):
            jobs.add(job)
            logger.warning("%s %s/%s: fetched a change that the watch missed", self._kind.resource.kind, *key)
