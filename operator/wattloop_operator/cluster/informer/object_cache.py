"""The operator's cache of the cluster: jobs, recurrences, workloads and pods, each in its newest known version.

Watches, resyncs and the responses to own writes feed it, so that reads follow writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template_limits import TOO_DEEP, TOO_LARGE, exceeded_limit, full_namespace, template_bytes
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import JOBS, PODS, RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES, ResourceType
from wattloop_operator.cluster.informer.deleted_recurrences import DeletedRecurrences
from wattloop_operator.cluster.informer.object_store import CachedObject, Key, ObjectStore, RefusedObject
from wattloop_operator.cluster.informer.stored_parts import Body, job_part, own_part, pod_part
from wattloop_operator.cluster.informer.template_bytes import TemplateBytes
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL, JobKey
from wattloop_operator.workloads.ownership import is_pod_of_job

# What the admission policy of the chart accepts is readable.
READABLE = f"expected a template of {TOO_LARGE}, and of {TOO_DEEP}"

logger = logging.getLogger(__name__)


class ObjectCache:
    """The stores of the watched kinds.

    Attributes:
        jobs: RecurringTrainingJobs.
        recurrences: TrainingRecurrences, grouped by their job.
        workloads: batch/v1 Jobs without unused fields, grouped by their RecurringTrainingJob.
        pods: Pods without unused fields, grouped by their recurrence. A deleted pod stays in its
            last state as long as its Job exists: it may be the only source of the Job's failure.
        deleted_recurrences: Ended recurrences that were deleted while their job is kept.
    """

    def __init__(self) -> None:
        self.deleted_recurrences = DeletedRecurrences()
        self._template_bytes = TemplateBytes()
        self.jobs: ObjectStore[RecurringTrainingJob] = ObjectStore(self._on_job_removed)
        self.recurrences: ObjectStore[TrainingRecurrence] = ObjectStore(self._on_recurrence_removed)
        self.workloads: ObjectStore[Body] = ObjectStore()
        self.pods: ObjectStore[Body] = ObjectStore()

    def put_job(self, body: Body) -> bool:
        """Store or refuse a RecurringTrainingJob; returns whether it is newer than the known one.

        It is refused if its template exceeds a bound, or if the namespace's templates together do.

        Raises:
            pydantic.ValidationError: This version of Wattloop cannot parse it.
        """
        key, uid, version = identity(body)
        if self.jobs.known_version(key) >= version:
            return False
        template = (body.get("spec") or {}).get("template")
        exceeded = exceeded_limit(template)
        if exceeded is not None:
            return self._refuse_job(body, str(exceeded))
        size = template_bytes(template)
        full = full_namespace(self._template_bytes.of_others(key), size)
        if full is not None:
            return self._refuse_job(body, str(full), size)
        job = RecurringTrainingJob.from_wire(own_part(body))
        is_new = self.jobs.put(CachedObject(key, uid, version, key, job))
        if is_new:
            self._template_bytes.set(key, size)
        return is_new

    def put_recurrence(self, body: Body) -> bool:
        """Store a TrainingRecurrence; returns whether it is newer than the stored one.

        Raises:
            pydantic.ValidationError: This version of Wattloop cannot parse it.
        """
        key, uid, version = identity(body)
        if _is_known(self.recurrences, key, version):
            return False
        recurrence = TrainingRecurrence.from_wire(own_part(body))
        if recurrence.status.result is not None:
            self._forget_pods(key)
        return self.recurrences.put(CachedObject(key, uid, version, (key[0], recurrence.spec.job_ref.name), recurrence))

    def put_workload(self, body: Body) -> bool:
        """Store a batch/v1 Job; returns whether it is newer than the stored one."""
        key, uid, version = identity(body)
        return self.workloads.put(CachedObject(key, uid, version, (key[0], _label(body, JOB_LABEL)), job_part(body)))

    def put_pod(self, body: Body) -> bool:
        """Store a pod; returns whether it is wanted and newer than the stored one."""
        if not self.pod_is_wanted(body):
            return False
        key, uid, version = identity(body)
        group = (key[0], _label(body, RECURRENCE_LABEL))
        return self.pods.put(CachedObject(key, uid, version, group, pod_part(body)))

    def pod_is_wanted(self, body: Body) -> bool:
        """Whether a pod is of use: its recurrence has no result yet."""
        recurrence = self.recurrences.get((identity(body)[0][0], _label(body, RECURRENCE_LABEL)))
        return recurrence is None or recurrence.value.status.result is None

    def remove_job(self, body: Body) -> bool:
        """Remove a deleted RecurringTrainingJob."""
        key, uid, _ = identity(body)
        self.deleted_recurrences.discard_job(uid)
        return self.jobs.remove(key, uid)

    def _refuse_job(self, body: Body, problem: str, size: int = 0) -> bool:
        key, uid, version = identity(body)
        stored = self.jobs.get(key)
        if stored is not None and stored.uid == uid:
            # Its last good spec goes on, with the status that was written since.
            read = RecurringTrainingJob.from_wire(
                {**own_part(body), "spec": stored.value.spec, "status": body.get("status") or {}}
            )
            metadata = read.metadata.model_copy(update={"generation": stored.value.metadata.generation})
            value = stored.value.model_copy(update={"metadata": metadata, "status": read.status})
            self.jobs.put(CachedObject(key, uid, version, key, value))
        return self.jobs.refuse(key, RefusedObject(uid, version, problem, size))

    def _on_job_removed(self, removed: CachedObject[RecurringTrainingJob]) -> None:
        self._template_bytes.set(removed.key, 0)

    def remove_recurrence(self, body: Body) -> bool:
        """Remove a deleted TrainingRecurrence and its pods."""
        key, uid, _ = identity(body)
        self._forget_pods(key)
        return self.recurrences.remove(key, uid)

    def remove_workload(self, body: Body) -> bool:
        """Remove a deleted Job and its pods."""
        key, uid, _ = identity(body)
        self._forget_pods(key)
        return self.workloads.remove(key, uid)

    def remove_pod(self, body: Body) -> bool:
        """Store the last state of a deleted pod if its Job exists; remove the pod otherwise."""
        key, uid, _ = identity(body)
        workload = self.workloads.get((key[0], _label(body, RECURRENCE_LABEL)))
        if workload is not None and is_pod_of_job(body["metadata"], workload.uid):
            return self.put_pod(body)
        return self.pods.remove(key, uid)

    def pods_of(self, workload: CachedObject[Body]) -> list[Body]:
        """The pods of a Job."""
        pods = (cached.value for cached in self.pods.of_group(workload.key))
        return [pod for pod in pods if is_pod_of_job(pod["metadata"], workload.uid)]

    def has_room_for(self, key: Key, refused: RefusedObject) -> bool:
        """Whether a job's namespace has room by now for the template that it had none for."""
        others = self._template_bytes.of_others(key)
        return refused.template_bytes > 0 and full_namespace(others, refused.template_bytes) is None

    def _on_recurrence_removed(self, removed: CachedObject[TrainingRecurrence]) -> None:
        job, recurrence = self.jobs.get(removed.group), removed.value
        if job is None or job.uid != recurrence.spec.job_ref.uid or job.value.metadata.deletion_timestamp is not None:
            return
        if recurrence.status.result is not None:
            self.deleted_recurrences.add(recurrence)

    def _forget_pods(self, group: Key) -> None:
        for cached in self.pods.of_group(group):
            self.pods.remove(cached.key, cached.uid)


def identity(body: Body) -> tuple[Key, str, int]:
    """Namespace and name, uid, and resource version of an object."""
    metadata = body["metadata"]
    version = int(metadata["resourceVersion"])
    return (str(metadata.get("namespace", "")), str(metadata["name"])), str(metadata["uid"]), version


def job_of(body: Body) -> JobKey:
    """The RecurringTrainingJob that an object belongs to by its label."""
    return JobKey(str(body["metadata"].get("namespace", "")), _label(body, JOB_LABEL))


@dataclass(frozen=True)
class WatchedKind:
    """A watched kind.

    Attributes:
        resource: Its path at the API server.
        labels: Label selector of the watched objects.
        object_store: Their store.
        put: Stores an object; returns whether it is newer than the stored one.
        remove: Removes a deleted object.
        job_of: Returns an object's RecurringTrainingJob.
        part: The part of an object that is stored.
        wanted: Whether an object is stored, by its metadata.
        outlives_deletion: Whether the store may keep deleted objects.
    """

    resource: ResourceType
    labels: str
    object_store: ObjectStore[Any]
    put: Callable[[Body], bool]
    remove: Callable[[Body], bool]
    job_of: Callable[[Body], JobKey] = job_of
    part: Callable[[Body], Body] = own_part
    wanted: Callable[[Body], bool] = lambda _: True
    outlives_deletion: bool = False

    def refuse(self, body: Body, problem: str) -> bool:
        """Refuse an object of which only the identity can be read; returns whether its version is a new one."""
        key, uid, version = identity(body)
        refused = RefusedObject(uid, version, f"it cannot be read: {problem}; {READABLE}", readable=False)
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
            lambda body: JobKey(*identity(body)[0]),
        ),
        WatchedKind(
            TRAINING_RECURRENCES,
            "",
            cache.recurrences,
            cache.put_recurrence,
            cache.remove_recurrence,
            _job_of_recurrence,
        ),
        WatchedKind(JOBS, RECURRENCE_LABEL, cache.workloads, cache.put_workload, cache.remove_workload, part=job_part),
        WatchedKind(
            PODS,
            RECURRENCE_LABEL,
            cache.pods,
            cache.put_pod,
            cache.remove_pod,
            part=pod_part,
            wanted=cache.pod_is_wanted,
            outlives_deletion=True,
        ),
    )


def _job_of_recurrence(body: Body) -> JobKey:
    # The label can be edited; the spec cannot.
    name = ((body.get("spec") or {}).get("jobRef") or {}).get("name")
    return JobKey(identity(body)[0][0], str(name)) if name else job_of(body)


def _is_known(object_store: ObjectStore[Any], key: Key, version: int) -> bool:
    cached = object_store.get(key)
    return cached is not None and cached.version >= version


def _label(body: Body, name: str) -> str:
    return str((body["metadata"].get("labels") or {}).get(name, ""))
