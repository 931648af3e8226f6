"""What the reporting API, which every replica serves without a watch, reads of the cluster: pods, recurrences, jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from cachetools import TTLCache, cached
from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_POD_GPU_USAGES, PodGpuUsage
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.power_fields import Power
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    FREQUENCY_PLANS,
    PODS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    ClusterApi,
    RejectedError,
)
from wattloop_operator.cluster.auth.authorizers import runs
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.domain.job_identity import history_uid
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.job_plan import job_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan
from wattloop_operator.reporting.interfaces import OwnershipError, PodAttempt, TooManyRequestsError
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets
from wattloop_operator.workloads.ownership import is_pod_of_job

MAX_PODS = 20_000
# A pod that runs no attempt never will; this bounds the effect of a wrong entry.
POD_SECONDS = 600.0
# Of one node: at once all pods of the longest report, such as after a time without an operator.
LOOK_UPS = Rate(per_second=20.0, burst=MAX_POD_GPU_USAGES)
MAX_NODES = 10_000


@dataclass(frozen=True)
class _PodEntry:
    node: str
    attempt: PodAttempt | None
    labelled: bool


class ClusterNodePods:
    """Finds the attempts that pods run, for the reports of nodes; once, since a pod's never changes. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float], cache: ObjectCache | None = None) -> None:
        self._api = api
        self._cache = cache or ObjectCache()
        self._lock = threading.Lock()
        self._entries: TTLCache[str, _PodEntry] = TTLCache(MAX_PODS, POD_SECONDS, clock)
        self._look_ups: TokenBuckets[str] = TokenBuckets(LOOK_UPS, clock, MAX_NODES)

    def attempts_of(self, node: str, usages: Sequence[PodGpuUsage]) -> dict[str, PodAttempt]:
        """See `AttemptsOfPods`."""
        found: dict[str, PodAttempt] = {}
        with self._lock:
            entries = {each.pod_uid: self._entries.get(each.pod_uid) for each in usages}
            unknown = sum(entry is None for entry in entries.values())
            if unknown and not self._look_ups.take(node, unknown):
                raise TooManyRequestsError(
                    f"unknown pods of node {node}", self._look_ups.wait_seconds(node, requests=unknown)
                )
        for usage in usages:
            entry = entries[usage.pod_uid] or self._looked_up(usage)
            if entry is not None and entry.node != node:
                raise OwnershipError(f"pod {usage.namespace}/{usage.pod} runs on node {entry.node}, not on {node}")
            if entry is not None and entry.attempt is not None:
                found[usage.pod_uid] = entry.attempt
        return found

    def _looked_up(self, usage: PodGpuUsage) -> _PodEntry | None:
        try:
            entry = self._look_up(usage)
        except RejectedError as error:
            raise OperationError(f"pod {usage.namespace}/{usage.pod} cannot be looked up: {error}") from error
        # A labelled pod without an attempt may get one, since its workload was started just now; a pod that waits gets
        # a node.
        if entry is not None and entry.node and (entry.attempt is not None or not entry.labelled):
            with self._lock:
                self._entries[usage.pod_uid] = entry
        return entry

    def _look_up(self, usage: PodGpuUsage) -> _PodEntry | None:
        pod = self._api.find(PODS, usage.namespace, usage.pod)
        if pod is None or pod["metadata"]["uid"] != usage.pod_uid:
            return self._look_up_deleted(usage)
        node = str((pod.get("spec") or {}).get("nodeName", ""))
        name = str((pod["metadata"].get("labels") or {}).get(RECURRENCE_LABEL, ""))
        recurrence = self._api.find(TRAINING_RECURRENCES, usage.namespace, name) if name else None
        if recurrence is None or not runs(self._api, pod, recurrence):
            return _PodEntry(node, None, bool(name))
        return _PodEntry(node, _attempt(recurrence), True)

    def _look_up_deleted(self, usage: PodGpuUsage) -> _PodEntry | None:
        """A deleted pod, from the status of its recurrence; a Job names its pods after itself."""
        name = usage.pod.rpartition("-")[0]
        # Read the cache before the status: an entry moves from the former to the latter.
        cached_node = self._cached_node(usage, name)
        recurrence = self._api.find(TRAINING_RECURRENCES, usage.namespace, name) if name else None
        pods = ((recurrence or {}).get("status") or {}).get("pods") or ()
        node = next((str(pod["node"]) for pod in pods if pod["uid"] == usage.pod_uid), cached_node)
        return None if recurrence is None or not node else _PodEntry(node, _attempt(recurrence), True)

    def _cached_node(self, usage: PodGpuUsage, name: str) -> str:
        """The node of a pod that is in the operator's cache and not in the status yet; empty if it is not."""
        key = (usage.namespace, name)
        job, recurrence = self._cache.workloads.get(key), self._cache.recurrences.get(key)
        pod = self._cache.pods.get((usage.namespace, usage.pod))
        if job is None or recurrence is None or pod is None or pod.uid != usage.pod_uid:
            return ""
        workload = recurrence.value.status.workload_ref
        owned = is_pod_of_job(pod.value["metadata"], job.uid)
        runs_attempt = owned and workload is not None and workload.uid == job.uid
        return str(pod.value["spec"]["nodeName"] or "") if runs_attempt else ""


def _attempt(recurrence: Mapping[str, Any]) -> PodAttempt:
    spec = recurrence["spec"]
    return PodAttempt(
        namespace=str(recurrence["metadata"]["namespace"]),
        name=str(recurrence["metadata"]["name"]),
        job=str(spec["jobRef"]["name"]),
        job_uid=str(spec["jobRef"]["uid"]),
        recurrence=int(spec["index"]),
        attempt=int(spec["attempt"]),
    )


MAX_JOBS = 10_000
# After a change of a job's selector, its running attempts hold the limit of the former for so long.
CACHE_SECONDS = 30.0


class ReportedObjects:
    """Finds the objects that reports are about, which every replica receives, whether it leads or not."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def recurrence(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `wattloop_operator.reporting.progress_writer.FindRecurrence`."""
        try:
            body = self._api.find(TRAINING_RECURRENCES, namespace, name)
        except RejectedError as error:
            raise OperationError(f"{namespace}/{name} cannot be read: {error}") from error
        return None if body is None else TrainingRecurrence.from_wire(body)


class JobSettings:
    """Reads how jobs choose power limits and plan pipelines. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        cache: TTLCache[tuple[str, str], Power | None] = TTLCache(MAX_JOBS, CACHE_SECONDS, clock)
        # Whatever refers to a plan of the user refers to one object.
        self._plans: WeakValueDictionary[tuple[str, str], GivenPlan] = WeakValueDictionary()
        self._plans_lock = threading.Lock()
        self._power_of = cached(cache, lock=threading.Lock())(self._read_power)

    def power_of(self, namespace: str, name: str) -> Power | None:
        """See `wattloop_operator.reporting.nodes.PowerOfJob`."""
        return self._power_of(namespace, name)

    def plan_of(self, recurrence: TrainingAttempt) -> JobPlan:
        """See `wattloop_operator.reporting.pipeline_service.PlanOfRecurrence`."""
        namespace, reference = recurrence.metadata.namespace, recurrence.spec.job_ref
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, reference.name)
            job = None if body is None else RecurringTrainingJob.from_wire(body)
            if job is None or history_uid(job) != reference.uid:
                return JobPlan(enabled=False)
            named = job.spec.power.named_plan
            found = None if named is None else self._api.find(FREQUENCY_PLANS, namespace, named)
            plan = job_plan(job, recurrence, None if found is None else FrequencyPlan.from_wire(found))
        except (RejectedError, ValidationError) as error:
            name = f"{namespace}/{reference.name}"
            raise OperationError(f"the frequency plan of {name} cannot be read: {error}") from error
        given = plan.given
        if given is None or given.spec is None:
            return plan
        with self._plans_lock:
            return replace(plan, given=self._plans.setdefault((given.name, given.digest), given))

    def _read_power(self, namespace: str, name: str) -> Power | None:
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, name)
            return None if body is None else RecurringTrainingJob.from_wire(body).spec.power
        except (RejectedError, ValidationError) as error:
            raise OperationError(f"RecurringTrainingJob {namespace}/{name} cannot be read: {error}") from error
