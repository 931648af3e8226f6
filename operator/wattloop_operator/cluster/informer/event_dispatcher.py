"""What follows an event: the object goes to the cache, and a key to a queue.

kopf's handlers, the informers and the lists before a watch all end here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ResourceType
from wattloop_operator.cluster.informer.object_cache import identity
from wattloop_operator.cluster.informer.object_store import CachedObject
from wattloop_operator.cluster.informer.stored_parts import Body, unreadable_problem
from wattloop_operator.cluster.informer.watched_kinds import WatchedKind
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)


class EventDispatcher:
    """Receives objects and events. Thread-safe.

    Args:
        kinds: The watched kinds.
        enqueue: Called with a kind, and with the key of a job to reconcile or, of another kind that people write, of
            the object.
        job_deleted: Called with each deleted job and its uid.
        heartbeat: Called with a kind at each of its events.
        all_listed: Called once, when all objects of all kinds have been listed.
        namespaces: The watched namespaces, each with a list of each kind; empty: one list of a kind has them all.
    """

    def __init__(
        self,
        kinds: tuple[WatchedKind, ...],
        *,
        enqueue: Callable[[WatchedKind, JobKey], None],
        job_deleted: Callable[[JobKey, str], None],
        heartbeat: Callable[[str], None],
        all_listed: Callable[[], None],
        namespaces: Sequence[str] = (),
    ) -> None:
        self.kinds = kinds
        self.enqueue = enqueue
        self._job_deleted = job_deleted
        self._heartbeat = heartbeat
        self._all_listed = all_listed
        self._lock = threading.Lock()
        self._unlisted = {kind.resource.path(namespace) for kind in kinds for namespace in kind.lists(namespaces)}
        self._synced = threading.Event()

    def kind(self, resource: ResourceType) -> WatchedKind:
        """The watched kind of a resource."""
        return next(kind for kind in self.kinds if kind.resource == resource)

    def on_event(self, kind: WatchedKind, event_type: str, body: Body) -> None:
        """Store, refuse or remove an object after an event of a watch."""
        if event_type == "DELETED":
            self.on_deleted(kind, body)
        else:
            self.on_read(kind, body)

    def on_read(self, kind: WatchedKind, body: Body) -> None:
        """Store or refuse an object of a list or an event, if its namespace has room for it."""
        if not kind.has_room(body):
            return
        problem = unreadable_problem(body)
        if problem:
            self.on_unreadable(kind, body, problem)
        else:
            self.on_object(kind, body)

    def on_object(self, kind: WatchedKind, body: Body) -> None:
        """Store an object, and enqueue its job unless the version is known, such as that of an own write."""
        self._heartbeat(kind.resource.kind)
        try:
            changed = kind.put(body)
        except ValidationError as error:
            (namespace, name), _, _ = identity(body)
            logger.warning(
                "%s %s/%s is ignored, because this version of Wattloop cannot parse it: %s",
                kind.resource.kind, namespace, name, error,
            )  # fmt: skip
            return
        if changed:
            self.enqueue(kind, kind.job_of(body))

    def on_unreadable(self, kind: WatchedKind, body: Body, problem: str) -> None:
        """Refuse an object of which only the identity can be read, and enqueue its job, which tells of it."""
        self._heartbeat(kind.resource.kind)
        if kind.refuse(body, problem):
            self.enqueue(kind, kind.job_of(body))

    def on_deleted(self, kind: WatchedKind, body: Body) -> None:
        """Remove an object, and enqueue its job."""
        self._heartbeat(kind.resource.kind)
        kind.remove(body)
        key = kind.job_of(body)
        if kind.resource == RECURRING_TRAINING_JOBS:
            self._job_deleted(key, identity(body)[1])
        else:
            self.enqueue(kind, key)

    def on_missing(self, kind: WatchedKind, cached: CachedObject[Any]) -> None:
        """Remove an object that a list does not have, and enqueue its job."""
        namespace, name = cached.key
        metadata = {"namespace": namespace, "name": name, "uid": cached.uid, "resourceVersion": str(cached.version)}
        kind.remove({"metadata": metadata})
        # The name of its group is that of its job.
        key = JobKey(namespace, cached.group[1])
        if kind.resource == RECURRING_TRAINING_JOBS:
            self._job_deleted(key, cached.uid)
        else:
            self.enqueue(kind, key)

    def on_listed(self, path: str) -> None:
        """Record that all objects of a path have been received; after the last path the cache is complete."""
        with self._lock:
            self._unlisted.discard(path)
            if self._unlisted or self._synced.is_set():
                return
            # Other threads expect of a synced dispatcher that the work runs; if it cannot start, they notice.
            try:
                self._all_listed()
            finally:
                self._synced.set()

    @property
    def synced(self) -> bool:
        """Whether all kinds have been listed, and `all_listed` has returned."""
        return self._synced.is_set()

    def jobs(self) -> list[JobKey]:
        """All existing jobs."""
        job_kinds = (kind for kind in self.kinds if kind.resource == RECURRING_TRAINING_JOBS)
        return [JobKey(*cached.key) for kind in job_kinds for cached in kind.object_store.all()]
