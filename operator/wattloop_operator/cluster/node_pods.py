"""The attempt of a pod whose usage an agent reports; looked up once, since it never changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import PodGpuUsage
from wattloop_operator.cluster.api import PODS, TRAINING_RECURRENCES, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.authorizers import runs
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.reporting.interfaces import OwnershipError, PodAttempt
from wattloop_operator.workloads.ownership import is_pod_of_job

MAX_PODS = 20_000
# A pod that runs no attempt never will; this bounds the effect of a wrong entry.
CACHE_SECONDS = 600.0


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

    def attempt_of(self, node: str, usage: PodGpuUsage) -> PodAttempt | None:
        """The attempt that a pod of this node runs, or ran before its deletion; None if it runs none."""
        with self._lock:
            entry = self._entries.get(usage.pod_uid)
        if entry is None:
            try:
                entry = self._look_up(usage)
            except RejectedError as error:
                raise OperationError(f"pod {usage.namespace}/{usage.pod} cannot be looked up: {error}") from error
            if entry is None:
                return None
            # A labelled pod without an attempt may get one: its workload was started just now.
            if entry.attempt is not None or not entry.labelled:
                with self._lock:
                    self._entries[usage.pod_uid] = entry
        if entry.node != node:
            raise OwnershipError(f"pod {usage.namespace}/{usage.pod} runs on node {entry.node}, not on {node}")
        return entry.attempt

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
