"""The attempt of a pod whose usage an agent reports; looked up once, since it never changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_POD_GPU_USAGES, PodGpuUsage
from wattloop_operator.cluster.api import PODS, TRAINING_RECURRENCES, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.authorizers import runs
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.reporting.interfaces import OwnershipError, PodAttempt, TooManyRequestsError
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets
from wattloop_operator.workloads.ownership import is_pod_of_job

MAX_PODS = 20_000
# A pod that runs no attempt never will; this bounds the effect of a wrong entry.
CACHE_SECONDS = 600.0
# Of one node: at once all pods of the longest report, such as after a time without an operator.
LOOK_UPS = Rate(per_second=20.0, burst=MAX_POD_GPU_USAGES)
MAX_NODES = 10_000


@dataclass(frozen=True)
class _PodEntry:
    node: str
    attempt: PodAttempt | None
    labelled: bool


class ClusterNodePods:
    """Finds the attempts that pods run, for the reports of nodes. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
        cache: The operator's cache of Jobs and pods.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float], cache: ObjectCache | None = None) -> None:
        self._api = api
        self._cache = cache or ObjectCache()
        self._lock = threading.Lock()
        self._entries: TTLCache[str, _PodEntry] = TTLCache(MAX_PODS, CACHE_SECONDS, clock)
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
