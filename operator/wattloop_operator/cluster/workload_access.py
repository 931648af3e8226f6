"""Starts, reads and deletes workloads of any kind at the API server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Template
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    JOBS,
    PODS,
    SERVICES,
    AlreadyExistsError,
    ClusterApi,
    RejectedError,
    ResourceType,
)
from wattloop_operator.cluster.auth.authorizers import controller_at_server
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.object_store import CachedObject
from wattloop_operator.cluster.informer.stored_parts import pod_part
from wattloop_operator.cluster.workload_waits import JobName, KueueAnswer, KueueWorkloads, PolledReads, RefusedPods
from wattloop_operator.domain.snapshot import WorkloadState
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.kinds import KINDS, kind_named, kind_of_template
from wattloop_operator.workloads.kubernetes_job import needs_pods
from wattloop_operator.workloads.ownership import (
    JOB,
    JOB_UID_LABEL,
    GroupKind,
    controller_of,
    controller_uid,
    group_kind,
    is_controlled_by,
    is_pod_of_job,
)
from wattloop_operator.workloads.workload_kind import WorkloadKind, as_object
from wattloop_operator.workloads.workload_manifest import (
    STRICT_ERROR,
    check_stored,
    kind_of,
    manifest,
    service,
    unknown_field,
)
from wattloop_operator.workloads.workload_state import state_of

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]
# Objects between a workload and its pods, of which the controllers are remembered, or that there are none. A right to
# read them may be given meanwhile.
MAX_INNER_OBJECTS, INNER_OBJECT_SECONDS = 10_000, 60.0


@dataclass(eq=False)
class WorkloadAccess:
    """The workloads of recurrences.

    Jobs and pods are watched and read from the cache; workloads of other kinds are read from the server
    each time.

    Attributes:
        addresses: Returns the addresses that pods started now get.
        monotonic: Monotonic seconds.

    Attributes:
        queued: What Kueue says of workloads that wait in its queues.
    """

    api: ClusterApi
    cache: ObjectCache
    addresses: Callable[[], ClusterAddresses]
    monotonic: Callable[[], float]

    def __post_init__(self) -> None:
        self.queued = KueueWorkloads(self.api, self.monotonic)
        self._refused_pods = RefusedPods(self.api, self.monotonic)
        self._controllers: TTLCache[str, Body] = TTLCache(MAX_INNER_OBJECTS, INNER_OBJECT_SECONDS, self.monotonic)
        self._lock = threading.Lock()

    def dry_run_create(self, job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> None:
        """Have the server validate a workload without storing it.

        Raises:
            TemplateError: The template cannot be started.
            RejectedError: The server rejects it.
        """
        body = manifest(job, recurrence, self.addresses())
        self._create_service(job, recurrence, dry_run=True)
        try:
            stored = self._validated(job.spec.template, self.api.resource_of(*kind_of(job)), body)
        except AlreadyExistsError:
            return
        check_stored(job.spec.template, stored)

    def start(self, job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> None:
        """Start the workload of a recurrence, unless an object of its name exists; first the Service of its pods.

        Raises:
            TemplateError: The template cannot be started.
            RejectedError: The server rejects it, or a Service of this name belongs to another object.
        """
        resource = self.api.resource_of(*kind_of(job))
        manifested = manifest(job, recurrence, self.addresses())
        self._create_service(job, recurrence)
        try:
            body = self.api.create(resource, manifested)
        except AlreadyExistsError:
            found = self.api.find(resource, recurrence.metadata.namespace, recurrence.metadata.name)
            if found is None:
                raise OperationError(f"{resource.path(*_key(recurrence))} existed and was deleted; retrying") from None
            body = found
        if resource == JOBS:
            self.cache.put_workload(body)
        self.cache.add_start(recurrence)

    def state(self, job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> WorkloadState | None:
        """The state of the workload of a recurrence; None if it does not exist.

        A missing workload is confirmed by the server; a missing event is not enough.
        """
        status = recurrence.status
        kind = (
            kind_of(job) if status.workload_ref is None else (status.workload_ref.api_version, status.workload_ref.kind)
        )
        started = status.workload_ref is not None or self.cache.is_start_unstated(recurrence)
        ended = status.result is not None
        names = kind_of_template(job.spec.template).training_containers(job.spec.template, job.spec.training_containers)
        container = next(iter(names), "")
        if group_kind(*kind) != JOB:
            return self._state_of_other(kind, recurrence, container) if started or not ended else None
        cached = self.cache.workloads.get(_key(recurrence))
        if cached is None and started and not ended:
            body = self.api.find(JOBS, *_key(recurrence))
            if body is not None:
                self.cache.put_workload(body)
                cached = self.cache.workloads.get(_key(recurrence))
        return None if cached is None else self._state_of_job(cached, recurrence, container)

    def poll_seconds(self, job: JobName) -> float | None:
        """Delay until a job is read again for the reason of a wait; None if none of its attempts waits for one."""
        delays = (each.poll_seconds(job) for each in self._reads)
        return min((each for each in delays if each is not None), default=None)

    def keep(self, job: JobName, uids: Collection[str]) -> None:
        """Drop what was read for workloads of a job that are not among these."""
        for each in self._reads:
            each.keep(job, uids)

    @property
    def _reads(self) -> tuple[PolledReads[KueueAnswer], PolledReads[str]]:
        return self.queued.reads, self._refused_pods.reads

    def _state(
        self, kind: WorkloadKind, body: Body, pods: Sequence[Body], recurrence: TrainingRecurrence, container: str
    ) -> WorkloadState:
        """The state, with what a queue says of its wait, or the controller that cannot create its pods."""
        state = state_of(kind, body, pods, recurrence.metadata.uid, container)
        state = self.queued.state(state, body, recurrence)
        lacks_pods = len(pods) < kind.pods(as_object(body.get("spec")))
        return self._refused_pods.state(state, recurrence, lacks_pods=lacks_pods)

    def delete(self, recurrence: TrainingRecurrence, state: WorkloadState, *, gracefully: bool) -> None:
        """Delete a workload and its pods; gracefully: the workload remains until its pods have ended."""
        resource = self.api.resource_of(state.api_version, state.kind)
        self.api.delete(resource, *_key(recurrence), state.uid, after_dependents=gracefully)
        if resource == JOBS and not gracefully:
            self.cache.workloads.remove(_key(recurrence), state.uid, before_event=True)

    def _validated(self, template: Template, resource: ResourceType, body: Body) -> Body:
        """A workload as the server would store it."""
        try:
            return self.api.create(resource, body, dry_run=True, strict=True)
        except RejectedError as error:
            if STRICT_ERROR not in str(error):
                raise
            unknown = unknown_field(template, body, str(error))
            if unknown is not None:
                raise TemplateError(str(unknown)) from error
        # Of what Wattloop adds, the server may drop a part; see `check_stored`.
        return self.api.create(resource, body, dry_run=True)

    def _create_service(
        self, job: RecurringTrainingJob, recurrence: TrainingRecurrence, *, dry_run: bool = False
    ) -> None:
        body = service(job, recurrence)
        if body is None:
            return
        try:
            self.api.create(SERVICES, body, dry_run=dry_run)
        except AlreadyExistsError:
            if dry_run:
                return
            # From this recurrence, if the operator ended before it created the Job.
            found = self.api.find(SERVICES, *_key(recurrence))
            if found is not None and controller_uid(found["metadata"]) != recurrence.metadata.uid:
                raise RejectedError(
                    f"a Service {'/'.join(_key(recurrence))} exists that Wattloop did not make; delete it"
                ) from None

    def _state_of_job(
        self, cached: CachedObject[Body], recurrence: TrainingRecurrence, container: str
    ) -> WorkloadState:
        pods = self.cache.pods_of(cached)
        if needs_pods(cached.value, pods):
            selector = f"{JOB_UID_LABEL}={cached.uid}"
            bodies, _ = self.api.list(PODS, namespace=recurrence.metadata.namespace, labels=selector, part=pod_part)
            for body in bodies:
                self.cache.put_pod(body)
            pods = self.cache.pods_of(cached)
        return self._state(KINDS[JOB], cached.value, pods, recurrence, container)

    def _state_of_other(
        self, kind: tuple[str, str], recurrence: TrainingRecurrence, container: str
    ) -> WorkloadState | None:
        known = kind_named(*kind)
        try:
            body = self.api.find(self.api.resource_of(*kind), *_key(recurrence))
            if body is None:
                return None
            pods = [
                cached.value
                for cached in self.cache.pods.of_group(_key(recurrence))
                if self._is_pod_of(cached.value["metadata"], str(body["metadata"]["uid"]), known.between)
            ]
        except RejectedError as error:
            raise OperationError(f"{kind[1]} {'/'.join(_key(recurrence))} cannot be read: {error}") from error
        return self._state(known, body, pods, recurrence, container)

    def _is_pod_of(self, pod: Body, workload_uid: str, between: frozenset[GroupKind]) -> bool:
        """Whether a workload of another kind controls a pod, itself or by objects of its own as a JobSet does."""
        owner = controller_of(pod)
        of_job = group_kind(str(owner.get("apiVersion")), str(owner.get("kind"))) == JOB
        if of_job and not is_pod_of_job(pod, str(owner["uid"])):
            return False
        return is_controlled_by(pod, workload_uid, between, lambda each: self._controller(str(pod["namespace"]), each))

    def _controller(self, namespace: str, owner: Body) -> Body:
        """The owner reference of the controller of an object between a workload and its pods.

        Empty if the object is gone or may not be read: one pod must not stop the job.
        """
        uid = str(owner["uid"])
        with self._lock:
            known = self._controllers.get(uid)
        if known is None:
            try:
                known = controller_at_server(self.api, namespace, owner)
            except RejectedError as error:
                name = f"{owner.get('kind')} {namespace}/{owner.get('name')}"
                logger.warning("%s cannot be read, so its pods count for no attempt: %s", name, error)
                known = {}
            with self._lock:
                self._controllers[uid] = known
        return known


def _key(recurrence: TrainingRecurrence) -> tuple[str, str]:
    return recurrence.metadata.namespace, recurrence.metadata.name
