"""The kinds that the operator follows: where each is stored, which part of it, and which jobs a change concerns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pydantic import ValidationError

from wattloop_operator.api.template_checks import TOO_DEEP, TOO_LARGE
from wattloop_operator.cluster.api import (
    FREQUENCY_PLANS,
    GPU_POWER_POLICIES,
    JOBS,
    PODS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    ResourceType,
)
from wattloop_operator.cluster.informer.object_cache import ObjectCache, identity, job_of_recurrence, label
from wattloop_operator.cluster.informer.object_store import CachedObject, Key, ObjectStore, RefusedObject
from wattloop_operator.cluster.informer.stored_parts import Body, job_part, own_part, pod_part, unreadable_problem
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL, JobKey

# What the admission policy of the chart accepts is readable.
READABLE = f"expected a template of {TOO_LARGE}, and of {TOO_DEEP}"

logger = logging.getLogger(__name__)


def own_key(body: Body) -> JobKey:
    """Namespace and name of an object."""
    return JobKey(*identity(body)[0])


def job_of(body: Body) -> JobKey:
    """The RecurringTrainingJob that an object belongs to by its label."""
    return JobKey(str(body["metadata"].get("namespace", "")), label(body, JOB_LABEL))


@dataclass(frozen=True)
class WatchedKind:
    """A watched kind.

    Attributes:
        cache: The cache that has the store.
        resource: Its path at the API server.
        object_store: Their store.
        put: Stores an object; returns whether it is newer than the stored one.
        remove: Removes a deleted object.
        job_of: Returns an object's RecurringTrainingJob; of a plan or a policy its own key.
        part: The part of an object that is stored.
        labels: Label selector of the watched objects.
        wanted: Whether an object is stored, by its metadata.
        is_bounded: Whether an object is stored only if its namespace has room for it.
        outlives_deletion: Whether the store may keep deleted objects.
        by_people: Whether people write it, and so kopf watches it.
        namespaced: Whether its objects have a namespace.
    """

    cache: ObjectCache
    resource: ResourceType
    object_store: ObjectStore[Any]
    put: Callable[[Body], bool]
    remove: Callable[[Body], bool]
    job_of: Callable[[Body], JobKey] = job_of
    part: Callable[[Body], Body] = own_part
    labels: str = ""
    wanted: Callable[[Body], bool] = lambda _: True
    is_bounded: bool = True
    outlives_deletion: bool = False
    by_people: bool = False
    namespaced: bool = True

    def lists(self, namespaces: Sequence[str]) -> Sequence[str]:
        """The namespaces of its lists.

        Args:
            namespaces: The watched namespaces; empty: all, which one list has.
        """
        return (namespaces if self.namespaced else ()) or ("",)

    def has_room(self, body: Body) -> bool:
        """Whether the namespace of an object, by its metadata, has room for it."""
        return not self.is_bounded or self.cache.has_room(self.object_store, body)

    def missing(self, listed: Collection[Key], namespace: str, list_version: int) -> list[CachedObject[Any]]:
        """The stored objects that a list does not have; see `ObjectStore.missing`."""
        missing = self.object_store.missing(listed, namespace, list_version)
        return [] if self.outlives_deletion else missing

    def refuse(self, body: Body, problem: str) -> bool:
        """Refuse an object of which only the identity can be read; returns whether its version is a new one."""
        key, uid, version = identity(body)
        job = self.job_of(body)
        text = f"it cannot be read: {problem}; {READABLE}"
        refused = RefusedObject(uid, version, text, readable=False, group=(job.namespace, job.name))
        is_new = self.object_store.refuse(key, refused)
        if is_new:
            logger.warning("%s %s/%s is ignored: %s", self.resource.kind, *key, problem)
        return is_new


def watched_kinds(cache: ObjectCache) -> tuple[WatchedKind, ...]:
    """The kinds that the operator watches; of Jobs and pods only those that Wattloop started."""

    def removing(object_store: ObjectStore[Any]) -> Callable[[Body], bool]:
        return lambda body: object_store.remove(*identity(body)[:2])

    jobs, plans, policies = cache.jobs, cache.plans, cache.policies
    recurrences, workloads, pods = cache.recurrences, cache.workloads, cache.pods
    return (
        WatchedKind(
            cache, RECURRING_TRAINING_JOBS, jobs, cache.put_job, cache.remove_job, own_key, by_people=True
        ),
        WatchedKind(cache, FREQUENCY_PLANS, plans, cache.put_plan, removing(plans), own_key, by_people=True),
        WatchedKind(
            cache, GPU_POWER_POLICIES, policies, cache.put_policy, removing(policies), own_key,
            by_people=True, is_bounded=False, namespaced=False,
        ),
        # The operator makes them, and starts none in a namespace without room.
        WatchedKind(
            cache, TRAINING_RECURRENCES, recurrences, cache.put_recurrence, cache.remove_recurrence,
            lambda body: JobKey(*job_of_recurrence(body)), is_bounded=False,
        ),
        WatchedKind(
            cache, JOBS, workloads, cache.put_workload, cache.remove_workload, part=job_part, labels=RECURRENCE_LABEL
        ),
        WatchedKind(
            cache, PODS, pods, cache.put_pod, cache.remove_pod, part=pod_part, labels=RECURRENCE_LABEL,
            wanted=cache.pod_is_wanted, outlives_deletion=True,
        ),
    )  # fmt: skip


@dataclass(eq=False)
class EventDispatcher:
    """Receives objects and events. Thread-safe.

    Attributes:
        enqueue: Called with a kind, and with the key of a job to reconcile or, of another kind that people write, of
            the object.
        job_deleted: Called with each deleted job and its uid.
        heartbeat: Called with a kind at each of its events.
        all_listed: Called once, when all objects of all kinds have been listed.
        namespaces: The watched namespaces, each with a list of each kind; empty: one list of a kind has them all.
    """

    kinds: tuple[WatchedKind, ...]
    _: KW_ONLY
    enqueue: Callable[[WatchedKind, JobKey], None]
    job_deleted: Callable[[JobKey, str], None]
    heartbeat: Callable[[str], None]
    all_listed: Callable[[], None]
    namespaces: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._unlisted = {
            each.resource.path(namespace) for each in self.kinds for namespace in each.lists(self.namespaces)
        }
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
        """Store an object, and enqueue its job unless the version is known, as that of a write of the operator."""
        self.heartbeat(kind.resource.kind)
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
        self.heartbeat(kind.resource.kind)
        if kind.refuse(body, problem):
            self.enqueue(kind, kind.job_of(body))

    def on_deleted(self, kind: WatchedKind, body: Body) -> None:
        """Remove an object, and enqueue its job."""
        self.heartbeat(kind.resource.kind)
        kind.remove(body)
        key = kind.job_of(body)
        if kind.resource == RECURRING_TRAINING_JOBS:
            self.job_deleted(key, identity(body)[1])
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
            self.job_deleted(key, cached.uid)
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
                self.all_listed()
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
