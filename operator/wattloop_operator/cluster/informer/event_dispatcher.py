"""Dispatches watch events: the object goes to the cache, and the key of its job to the work queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS
from wattloop_operator.cluster.informer.object_cache import WatchedKind, identity
from wattloop_operator.cluster.informer.stored_parts import Body, unreadable_problem
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)


class EventDispatcher:
    """Receives watch events.

    Args:
        kinds: The watched kinds.
        enqueue: Called with each job to reconcile.
        job_deleted: Called with each deleted job and its uid.
        heartbeat: Called with a kind at each of its events.
        all_listed: Called once, when all objects of all kinds have been listed.
        namespaces: The watched namespaces, each with a list of each kind; empty: one list of a kind has them all.
    """

    def __init__(
        self,
        kinds: tuple[WatchedKind, ...],
        *,
        enqueue: Callable[[JobKey], None],
        job_deleted: Callable[[JobKey, str], None],
        heartbeat: Callable[[str], None],
        all_listed: Callable[[], None],
        namespaces: Sequence[str] = (),
    ) -> None:
        self.kinds = kinds
        self._enqueue = enqueue
        self._job_deleted = job_deleted
        self._heartbeat = heartbeat
        self._all_listed = all_listed
        self._lists = len(kinds) * max(len(namespaces), 1)
        self._listed: set[str] = set()
        self._synced = threading.Event()

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
            self._enqueue(kind.job_of(body))

    def on_unreadable(self, kind: WatchedKind, body: Body, problem: str) -> None:
        """Refuse an object of which only the identity can be read, and enqueue its job, which tells of it."""
        self._heartbeat(kind.resource.kind)
        if kind.refuse(body, problem):
            self._enqueue(kind.job_of(body))

    def on_deleted(self, kind: WatchedKind, body: Body) -> None:
        """Remove an object, and enqueue its job."""
        self._heartbeat(kind.resource.kind)
        kind.remove(body)
        key = kind.job_of(body)
        if kind.resource == RECURRING_TRAINING_JOBS:
            self._job_deleted(key, identity(body)[1])
        else:
            self._enqueue(key)

    def on_listed(self, path: str) -> None:
        """Record that all objects of a path have been received; after the last path the cache is complete."""
        self._listed.add(path)
        if len(self._listed) >= self._lists and not self._synced.is_set():
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
