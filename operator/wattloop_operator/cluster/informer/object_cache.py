"""What the operator knows of the cluster: jobs, recurrences, their workloads and pods, each as it was seen last.

It is fed by the watches, by the periodic comparison and by the answers of own writes, so that reading follows writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    JOBS,
    PODS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    ResourceType,
)
from wattloop_operator.cluster.informer.object_store import CachedObject, Key, ObjectStore
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL, JobKey
from wattloop_operator.workloads.ownership import is_pod_of_job

Body = Mapping[str, Any]
KEPT_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
KEPT_POD_STATUS = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")


class ObjectCache:
    """The shelves of the kinds that the operator watches.

    Attributes:
        jobs: RecurringTrainingJobs.
        recurrences: TrainingRecurrences, grouped by their job.
        workloads: batch/v1 Jobs, grouped by the RecurringTrainingJob; what nobody reads is left out.
        pods: Pods, grouped by the name of their recurrence; what nobody reads is left out. A pod that is gone stays as
            it was last as long as its Job is there: why a Job failed may be known from its pod alone.
    """

    def __init__(self) -> None:
        self.jobs: ObjectStore[RecurringTrainingJob] = ObjectStore()
        self.recurrences: ObjectStore[TrainingRecurrence] = ObjectStore()
        self.workloads: ObjectStore[Body] = ObjectStore()
        self.pods: ObjectStore[Body] = ObjectStore()

    def put_job(self, body: Body) -> bool:
        """Take in a RecurringTrainingJob; returns whether it is news.

        Raises:
            pydantic.ValidationError: It is not of the form that this version knows.
        """
        key, uid, version = identity(body)
        if _known(self.jobs, key, version):
            return False
        return self.jobs.put(
            CachedObject(key, uid, version, key, RecurringTrainingJob.from_wire(_without_managers(body)))
        )

    def put_recurrence(self, body: Body) -> bool:
        """Take in a TrainingRecurrence; returns whether it is news.

        Raises:
            pydantic.ValidationError: It is not of the form that this version knows.
        """
        key, uid, version = identity(body)
        if _known(self.recurrences, key, version):
            return False
        recurrence = TrainingRecurrence.from_wire(_without_managers(body))
        if recurrence.status.result is not None:
            self._forget_pods(key)
        return self.recurrences.put(CachedObject(key, uid, version, (key[0], recurrence.spec.job_ref.name), recurrence))

    def put_workload(self, body: Body) -> bool:
        """Take in a batch/v1 Job; returns whether it is news."""
        key, uid, version = identity(body)
        spec = body.get("spec") or {}
        kept = {"metadata": _kept(body), "spec": {"suspend": spec.get("suspend")}, "status": body.get("status") or {}}
        return self.workloads.put(CachedObject(key, uid, version, (key[0], _label(body, JOB_LABEL)), kept))

    def put_pod(self, body: Body) -> bool:
        """Take in a pod; returns whether it is news."""
        if not self.pod_is_wanted(body):
            return False
        key, uid, version = identity(body)
        group = (key[0], _label(body, RECURRENCE_LABEL))
        status = body.get("status") or {}
        kept = {
            "metadata": _kept(body),
            "spec": {"nodeName": (body.get("spec") or {}).get("nodeName")},
            "status": {name: status[name] for name in KEPT_POD_STATUS if name in status},
        }
        return self.pods.put(CachedObject(key, uid, version, group, kept))

    def pod_is_wanted(self, body: Body) -> bool:
        """Whether a pod can still tell something: once an outcome is written, nobody asks its pods any more."""
        recurrence = self.recurrences.get((identity(body)[0][0], _label(body, RECURRENCE_LABEL)))
        return recurrence is None or recurrence.value.status.result is None

    def remove_job(self, body: Body) -> bool:
        """Forget a RecurringTrainingJob that is gone."""
        key, uid, _ = identity(body)
        return self.jobs.remove(key, uid)

    def remove_recurrence(self, body: Body) -> bool:
        """Forget a TrainingRecurrence that is gone."""
        key, uid, _ = identity(body)
        self._forget_pods(key)
        return self.recurrences.remove(key, uid)

    def remove_workload(self, body: Body) -> bool:
        """Forget a Job that is gone, and its pods."""
        key, uid, _ = identity(body)
        self._forget_pods(key)
        return self.workloads.remove(key, uid)

    def remove_pod(self, body: Body) -> bool:
        """Take in the last state of a pod that is gone, where its Job is still there."""
        key, uid, _ = identity(body)
        workload = self.workloads.get((key[0], _label(body, RECURRENCE_LABEL)))
        if workload is not None and is_pod_of_job(body["metadata"], workload.uid):
            return self.put_pod(body)
        return self.pods.remove(key, uid)

    def pods_of(self, workload: CachedObject[Body]) -> list[Body]:
        """The pods of a Job."""
        group = workload.key
        return [held.value for held in self.pods.of_group(group) if is_pod_of_job(held.value["metadata"], workload.uid)]

    def _forget_pods(self, group: Key) -> None:
        for held in self.pods.of_group(group):
            self.pods.remove(held.key, held.uid)


def identity(body: Body) -> tuple[Key, str, int]:
    """Namespace and name, uid, and the resource version as the number that it is."""
    metadata = body["metadata"]
    version = int(metadata["resourceVersion"])
    return (str(metadata.get("namespace", "")), str(metadata["name"])), str(metadata["uid"]), version


def job_of(body: Body) -> JobKey:
    """The RecurringTrainingJob that an object belongs to by its label."""
    return JobKey(str(body["metadata"].get("namespace", "")), _label(body, JOB_LABEL))


def _known(object_store: ObjectStore[Any], key: Key, version: int) -> bool:
    held = object_store.get(key)
    return held is not None and held.version >= version


def _label(body: Body, name: str) -> str:
    return str((body["metadata"].get("labels") or {}).get(name, ""))


def _kept(body: Body) -> dict[str, Any]:
    return {name: body["metadata"][name] for name in KEPT_METADATA if name in body["metadata"]}


def _without_managers(body: Body) -> dict[str, Any]:
    # What other tools keep in annotations and managed fields is the larger part of many objects.
    metadata = {name: value for name, value in body["metadata"].items() if name not in {"managedFields", "annotations"}}
    return {**body, "metadata": metadata}


@dataclass(frozen=True)
class WatchedKind:
    """A kind that is watched.

    Attributes:
        resource: Its address.
        labels: Which objects of it.
        object_store: Where they are kept.
        put: Takes one in.
        remove: Forgets one that is gone.
        job_of: The RecurringTrainingJob that one belongs to.
        wanted: Whether one is kept at all, as far as its metadata tell.
        outlive: Whether what is gone from the server may still be kept.
    """

    resource: ResourceType
    labels: str
    object_store: ObjectStore[Any]
    put: Callable[[Body], bool]
    remove: Callable[[Body], bool]
    job_of: Callable[[Body], JobKey] = job_of
    wanted: Callable[[Body], bool] = lambda _: True
    outlive: bool = False


def watched_kinds(cache: ObjectCache) -> tuple[WatchedKind, ...]:
    """The kinds that the operator watches: of Jobs and pods only those that Wattloop started."""
    return (
        WatchedKind(RECURRING_TRAINING_JOBS, "", cache.jobs, cache.put_job, cache.remove_job, _itself),
        WatchedKind(
            TRAINING_RECURRENCES,
            "",
            cache.recurrences,
            cache.put_recurrence,
            cache.remove_recurrence,
            _of_recurrence,
        ),
        WatchedKind(JOBS, RECURRENCE_LABEL, cache.workloads, cache.put_workload, cache.remove_workload),
        WatchedKind(
            PODS,
            RECURRENCE_LABEL,
            cache.pods,
            cache.put_pod,
            cache.remove_pod,
            wanted=cache.pod_is_wanted,
            outlive=True,
        ),
    )


def _itself(body: Body) -> JobKey:
    return JobKey(*identity(body)[0])


def _of_recurrence(body: Body) -> JobKey:
    # Anyone who may edit a recurrence may take its label away, but not change its spec.
    name = ((body.get("spec") or {}).get("jobRef") or {}).get("name")
    return JobKey(identity(body)[0][0], str(name)) if name else job_of(body)
