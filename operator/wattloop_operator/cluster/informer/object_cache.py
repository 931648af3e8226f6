"""The operator's cache of the cluster: jobs, recurrences, workloads and pods, each in its newest known version.

Watches, resyncs and the responses to own writes feed it, so that reads follow writes.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.model import first_problem
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template_checks import exceeded_limit, full_namespace, template_bytes
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.informer.object_store import (
    CachedObject,
    Key,
    NamespaceBytes,
    ObjectStore,
    RefusedObject,
    model_bytes,
    parsed_bytes,
)
from wattloop_operator.cluster.informer.stored_parts import Body, job_part, own_part, pod_part
from wattloop_operator.domain.job_identity import history_uid
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL
from wattloop_operator.workloads.ownership import is_pod_of_job

# Of a namespace's share nothing new starts beyond this; the rest is for what runs, and for jobs that are refused.
STARTING_SHARE = 0.75
ROOM = (
    "delete jobs that are no longer needed, lower their history limits, use a further namespace, or give the operator "
    "more memory (operator.resources in the chart's values)"
)
MEBIBYTE = 1024**2

logger = logging.getLogger(__name__)


class ObjectCache:
    """The stores of the watched kinds.

    Args:
        namespace_bytes: Bytes of memory that the objects of a namespace may take together.

    Attributes:
        jobs: RecurringTrainingJobs.
        plans: FrequencyPlans, as far as their namespaces have room.
        policies: GPUPowerPolicies.
        recurrences: TrainingRecurrences, grouped by their job.
        workloads: batch/v1 Jobs without unused fields, grouped by their RecurringTrainingJob.
        pods: Pods without unused fields, grouped by their recurrence. A deleted pod stays in its
            last state as long as its Job exists: it may be the only source of the Job's failure.
        deleted_recurrences: Recurrences that were deleted while their job is kept: ended ones, and those that the
            job's status does not state yet.
    """

    def __init__(self, namespace_bytes: int = sys.maxsize) -> None:
        self._namespace_bytes = namespace_bytes
        self._lock = threading.Lock()
        self._full_namespaces: set[str] = set()
        self.deleted_recurrences = DeletedRecurrences()
        self._template_bytes = NamespaceBytes()
        # By the uids of their recurrences.
        self._unstated_starts: set[str] = set()
        self.jobs: ObjectStore[RecurringTrainingJob] = ObjectStore(
            lambda removed: self._template_bytes.set(removed.key, 0)
        )
        self.plans: ObjectStore[FrequencyPlan] = ObjectStore()
        self.policies: ObjectStore[GPUPowerPolicy] = ObjectStore()
        self.recurrences: ObjectStore[TrainingRecurrence] = ObjectStore(self._on_recurrence_removed)
        self.workloads: ObjectStore[Body] = ObjectStore()
        self.pods: ObjectStore[Body] = ObjectStore()

    def put_job(self, body: Body) -> bool:
        """Store or refuse a RecurringTrainingJob; returns whether it is newer than the known one.

        It is refused if this version of Wattloop cannot read it, if its template exceeds a bound, or if the namespace's
        templates together do. A new one is refused if its namespace's objects leave it no room.
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
        stored = self.jobs.get(key)
        crowded = self.crowded(key[0])
        if crowded and (stored is None or stored.uid != uid):
            return self._refuse_job(body, crowded, size)
        kept = own_part(body)
        try:
            job = RecurringTrainingJob.from_wire(kept)
        except ValidationError as error:
            return self._refuse_job(body, _unread(RecurringTrainingJob.__name__, key, error))
        is_new = self.jobs.put(CachedObject(key, uid, version, key, job, model_bytes(kept)))
        if is_new:
            self._template_bytes.set(key, size)
        return is_new

    def put_plan(self, body: Body) -> bool:
        """Store a FrequencyPlan; returns whether it is newer than the stored one.

        Raises:
            pydantic.ValidationError: This version of Wattloop cannot parse it.
        """
        key, uid, version = identity(body)
        if self.plans.has(key, version):
            return False
        kept = own_part(body)
        return self.plans.put(CachedObject(key, uid, version, key, FrequencyPlan.from_wire(kept), model_bytes(kept)))

    def put_policy(self, body: Body) -> bool:
        """Store a GPUPowerPolicy; returns whether it is newer than the stored one.

        Raises:
            pydantic.ValidationError: This version of Wattloop cannot parse it.
        """
        key, uid, version = identity(body)
        if self.policies.has(key, version):
            return False
        return self.policies.put(CachedObject(key, uid, version, key, GPUPowerPolicy.from_wire(own_part(body))))

    def put_recurrence(self, body: Body) -> bool:
        """Store a TrainingRecurrence; returns whether it is newer than the known one.

        It is refused if this version of Wattloop cannot read it.
        """
        key, uid, version = identity(body)
        if self.recurrences.has(key, version):
            return False
        kept = own_part(body)
        try:
            recurrence = TrainingRecurrence.from_wire(kept)
        except ValidationError as error:
            problem = _unread(TrainingRecurrence.__name__, key, error)
            return self.recurrences.refuse(key, RefusedObject(uid, version, problem, group=job_of_recurrence(body)))
        if recurrence.status.result is not None:
            self._forget_pods(key)
        if recurrence.status.workload_ref is not None or recurrence.status.result is not None:
            self._unstated_starts.discard(uid)
        group = (key[0], recurrence.spec.job_ref.name)
        return self.recurrences.put(CachedObject(key, uid, version, group, recurrence, model_bytes(kept)))

    def add_start(self, recurrence: TrainingRecurrence) -> None:
        """Remember that the workload of a recurrence was started, until its status names it or it is deleted."""
        metadata = recurrence.metadata
        self._unstated_starts.add(metadata.uid)
        if self.recurrences.get((metadata.namespace, metadata.name)) is None:
            self._unstated_starts.discard(metadata.uid)

    def is_start_unstated(self, recurrence: TrainingRecurrence) -> bool:
        """Whether the workload of a recurrence was started, and its status does not name it yet."""
        return recurrence.metadata.uid in self._unstated_starts

    def put_workload(self, body: Body) -> bool:
        """Store a batch/v1 Job; returns whether it is newer than the stored one."""
        key, uid, version = identity(body)
        group, kept = (key[0], label(body, JOB_LABEL)), job_part(body)
        return self.workloads.put(CachedObject(key, uid, version, group, kept, parsed_bytes(kept)))

    def put_pod(self, body: Body) -> bool:
        """Store a pod; returns whether it is wanted and newer than the stored one."""
        if not self.pod_is_wanted(body):
            return False
        key, uid, version = identity(body)
        group, kept = (key[0], label(body, RECURRENCE_LABEL)), pod_part(body)
        return self.pods.put(CachedObject(key, uid, version, group, kept, parsed_bytes(kept)))

    def pod_is_wanted(self, body: Body) -> bool:
        """Whether a pod is of use: its recurrence has no result yet."""
        recurrence = self.recurrences.get((identity(body)[0][0], label(body, RECURRENCE_LABEL)))
        return recurrence is None or recurrence.value.status.result is None

    def remove_job(self, body: Body) -> bool:
        """Remove a deleted RecurringTrainingJob."""
        key, uid, _ = identity(body)
        stored = self.jobs.get(key)
        if stored is not None and stored.uid == uid:
            self.deleted_recurrences.discard_job(history_uid(stored.value))
        return self.jobs.remove(key, uid)

    def _refuse_job(self, body: Body, problem: str, size: int = 0) -> bool:
        key, uid, version = identity(body)
        stored = self.jobs.get(key)
        if stored is not None and stored.uid == uid:
            # Its last good spec goes on, with the status that was written since.
            status = {**own_part(body), "spec": stored.value.spec, "status": body.get("status") or {}}
            try:
                read = RecurringTrainingJob.from_wire(status)
            except ValidationError:
                # Nothing can follow from a status that is not known.
                self.jobs.remove(key, uid)
            else:
                metadata = read.metadata.model_copy(update={"generation": stored.value.metadata.generation})
                value = stored.value.model_copy(update={"metadata": metadata, "status": read.status})
                self.jobs.put(CachedObject(key, uid, version, key, value, stored.size_bytes))
        return self.jobs.refuse(key, RefusedObject(uid, version, problem, size))

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
        workload = self.workloads.get((key[0], label(body, RECURRENCE_LABEL)))
        if workload is not None and is_pod_of_job(body["metadata"], workload.uid):
            return self.put_pod(body)
        return self.pods.remove(key, uid)

    def pods_of(self, workload: CachedObject[Body]) -> list[Body]:
        """The pods of a Job."""
        pods = (cached.value for cached in self.pods.of_group(workload.key))
        return [pod for pod in pods if is_pod_of_job(pod["metadata"], workload.uid)]

    def has_room_for(self, key: Key, refused: RefusedObject) -> bool:
        """Whether a job's namespace has room by now for the job that it had none for."""
        if not refused.template_bytes or (self.jobs.get(key) is None and self.crowded(key[0])):
            return False
        return full_namespace(self._template_bytes.of_others(key), refused.template_bytes) is None

    def crowded(self, namespace: str) -> str:
        """Why nothing new starts in a namespace: the memory that its objects take. Empty if they leave room."""
        limit, taken = int(self._namespace_bytes * STARTING_SHARE), self._bytes_of(namespace)
        if taken <= limit:
            return ""
        return (
            f"the objects of namespace {namespace} take {_mebibytes(taken)} of the operator's memory, expected at most "
            f"{_mebibytes(limit)}; {ROOM}"
        )

    def has_room(self, store: ObjectStore[Any], body: Body) -> bool:
        """Whether an object is read: it is known, or its namespace's objects have not used up their share."""
        key, _, _ = identity(body)
        namespace = key[0]
        is_full = self._bytes_of(namespace) > self._namespace_bytes
        with self._lock:
            is_told = namespace in self._full_namespaces
            (self._full_namespaces.add if is_full else self._full_namespaces.discard)(namespace)
        if is_full and not is_told:
            logger.warning(
                "the objects of namespace %s take more than %s of the operator's memory: its further jobs, workloads "
                "and pods are passed over; %s",
                namespace, _mebibytes(self._namespace_bytes), ROOM,
            )  # fmt: skip
        return not is_full or store.known_version(key) > 0

    def _bytes_of(self, namespace: str) -> int:
        stores = (self.jobs, self.plans, self.recurrences, self.workloads, self.pods, self.deleted_recurrences)
        return sum(each.bytes_of(namespace) for each in stores)

    def _on_recurrence_removed(self, removed: CachedObject[TrainingRecurrence]) -> None:
        job, recurrence = self.jobs.get(removed.group), removed.value
        self._unstated_starts.discard(removed.uid)
        if (
            job is None
            or history_uid(job.value) != recurrence.spec.job_ref.uid
            or job.value.metadata.deletion_timestamp is not None
        ):
            return
        active = set(job.value.status.active)
        is_unstated = recurrence.status.result is not None or recurrence.metadata.name not in active
        # Nothing starts in a full namespace, so no slot runs twice before there is room.
        if is_unstated and self._bytes_of(removed.key[0]) <= self._namespace_bytes:
            self.deleted_recurrences.add(removed)

    def _forget_pods(self, group: Key) -> None:
        for cached in self.pods.of_group(group):
            self.pods.remove(cached.key, cached.uid)


def identity(body: Body) -> tuple[Key, str, int]:
    """Namespace and name, uid, and resource version of an object."""
    metadata = body["metadata"]
    version = int(metadata["resourceVersion"])
    return (str(metadata.get("namespace", "")), str(metadata["name"])), str(metadata["uid"]), version


def job_of_recurrence(body: Body) -> Key:
    """Namespace and name of the job of a TrainingRecurrence, which need be none of this version."""
    spec = body.get("spec")
    reference = spec.get("jobRef") if isinstance(spec, Mapping) else None
    # The label can be edited; the spec cannot.
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return identity(body)[0][0], str(name or label(body, JOB_LABEL))


def _unread(kind: str, key: Key, error: ValidationError) -> str:
    problem = f"this version of Wattloop cannot read it ({first_problem(error)})"
    logger.warning("%s %s/%s: %s", kind, *key, problem)
    return f"{problem}; use the operator of the version that wrote it, or correct or delete it"


def _mebibytes(size: int) -> str:
    return f"{size / MEBIBYTE:.1f} MiB"


def label(body: Body, name: str) -> str:
    """The value of a label; empty without it."""
    return str((body["metadata"].get("labels") or {}).get(name, ""))


class DeletedRecurrences:
    """Remembers each deleted recurrence until its Event has been created, or its job is deleted. Thread-safe.

    It is empty after a restart: a list does not name what was deleted before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_uid: dict[str, CachedObject[TrainingRecurrence]] = {}
        self._bytes = NamespaceBytes()

    def add(self, removed: CachedObject[TrainingRecurrence]) -> None:
        """Remember a recurrence."""
        with self._lock:
            self._by_uid[removed.uid] = removed
            self._bytes.set((removed.key[0], removed.uid), removed.size_bytes)

    def of_job(self, uid: str) -> tuple[TrainingRecurrence, ...]:
        """Those of the job with this uid."""
        with self._lock:
            remembered = [each.value for each in self._by_uid.values()]
        return tuple(each for each in remembered if each.spec.job_ref.uid == uid)

    def bytes_of(self, namespace: str) -> int:
        """Bytes of memory that those of a namespace count."""
        return self._bytes.of_namespace(namespace)

    def discard(self, uid: str) -> None:
        """Forget the recurrence with this uid."""
        with self._lock:
            removed = self._by_uid.pop(uid, None)
            if removed is not None:
                self._bytes.set((removed.key[0], uid), 0)

    def discard_job(self, uid: str) -> None:
        """Forget those of the job with this uid."""
        for each in self.of_job(uid):
            self.discard(each.metadata.uid)
