"""The kinds that the operator follows: where each is stored, which part of it, and which jobs a change concerns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

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
from wattloop_operator.cluster.informer.object_bytes import Key
from wattloop_operator.cluster.informer.object_cache import ObjectCache, identity, job_of_recurrence, label
from wattloop_operator.cluster.informer.object_store import CachedObject, ObjectStore, RefusedObject
from wattloop_operator.cluster.informer.stored_parts import Body, job_part, own_part, pod_part
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
        resource: Its path at the API server.
        labels: Label selector of the watched objects.
        object_store: Their store.
        put: Stores an object; returns whether it is newer than the stored one.
        remove: Removes a deleted object.
        job_of: Returns an object's RecurringTrainingJob; of a plan or a policy its own key.
        part: The part of an object that is stored.
        wanted: Whether an object is stored, by its metadata.
        has_room: Whether the namespace of an object, by its metadata, has room for it.
        outlives_deletion: Whether the store may keep deleted objects.
        by_people: Whether people write it, and so kopf watches it.
        namespaced: Whether its objects have a namespace.
    """

    resource: ResourceType
    labels: str
    object_store: ObjectStore[Any]
    put: Callable[[Body], bool]
    remove: Callable[[Body], bool]
    job_of: Callable[[Body], JobKey] = job_of
    part: Callable[[Body], Body] = own_part
    wanted: Callable[[Body], bool] = lambda _: True
    has_room: Callable[[Body], bool] = lambda _: True
    outlives_deletion: bool = False
    by_people: bool = False
    namespaced: bool = True

    def lists(self, namespaces: Sequence[str]) -> Sequence[str]:
        """The namespaces of its lists.

        Args:
            namespaces: The watched namespaces; empty: all, which one list has.
        """
        return (namespaces if self.namespaced else ()) or ("",)

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
    return (
        WatchedKind(
            RECURRING_TRAINING_JOBS,
            "",
            cache.jobs,
            cache.put_job,
            cache.remove_job,
            own_key,
            has_room=lambda body: cache.has_room(cache.jobs, body),
            by_people=True,
        ),
        WatchedKind(
            FREQUENCY_PLANS,
            "",
            cache.plans,
            cache.put_plan,
            lambda body: cache.plans.remove(*identity(body)[:2]),
            own_key,
            has_room=lambda body: cache.has_room(cache.plans, body),
            by_people=True,
        ),
        WatchedKind(
            GPU_POWER_POLICIES,
            "",
            cache.policies,
            cache.put_policy,
            lambda body: cache.policies.remove(*identity(body)[:2]),
            own_key,
            by_people=True,
            namespaced=False,
        ),
        # The operator makes them, and starts none in a namespace without room.
        WatchedKind(
            TRAINING_RECURRENCES,
            "",
            cache.recurrences,
            cache.put_recurrence,
            cache.remove_recurrence,
            lambda body: JobKey(*job_of_recurrence(body)),
        ),
        WatchedKind(
            JOBS,
            RECURRENCE_LABEL,
            cache.workloads,
            cache.put_workload,
            cache.remove_workload,
            part=job_part,
            has_room=lambda body: cache.has_room(cache.workloads, body),
        ),
        WatchedKind(
            PODS,
            RECURRENCE_LABEL,
            cache.pods,
            cache.put_pod,
            cache.remove_pod,
            part=pod_part,
            wanted=cache.pod_is_wanted,
            has_room=lambda body: cache.has_room(cache.pods, body),
            outlives_deletion=True,
        ),
    )
