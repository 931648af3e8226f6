"""Which attempt a pod runs, for agents that say what the pod used: looked up once a pod, since it never changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import OperationError
from wattloop.node_energy import PodGpuUsage
from wattloop_operator.cluster.api import PODS, TRAINING_RECURRENCES, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.pod_ownership import runs
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.timed_cache import TimedCache
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.reporting.interfaces import PodAttempt, PodOwnershipError
from wattloop_operator.workloads.ownership import is_pod_of_job

MAX_PODS = 20_000
# What is none of ours stays so; this is how long a mistake in that would last.
FORGOTTEN_SECONDS = 600.0


@dataclass(frozen=True)
class _Known:
    node: str
    attempt: PodAttempt | None
    labelled: bool


class ClusterNodePods:
    """Implements `wattloop_operator.reporting.interfaces.NodePods`. Safe to use from several threads.

    Args:
        api: The API server.
        clock: Monotonic seconds.
        cache: What this operator has seen of Jobs and pods.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float], cache: ObjectCache | None = None) -> None:
        self._api = api
        self._cache = cache or ObjectCache()
        self._known: TimedCache[str, _Known] = TimedCache(clock, seconds=FORGOTTEN_SECONDS, most=MAX_PODS)

    def attempt_of(self, node: str, usage: PodGpuUsage) -> PodAttempt | None:
        """The attempt that a pod of this node runs, or ran before it was gone; None where it is none of ours."""
        known = self._known.get(usage.pod_uid)
        if known is None:
            try:
                known = self._look_up(usage)
            except RejectedError as error:
                raise OperationError(f"pod {usage.namespace}/{usage.pod} cannot be looked up: {error}") from error
            if known is None:
                return None
            # What says that it is ours and is not yet seen to be may be: its workload was started a moment ago.
            if known.attempt is not None or not known.labelled:
                self._known.keep(usage.pod_uid, known)
        if known.node != node:
            raise PodOwnershipError(f"pod {usage.namespace}/{usage.pod} runs on node {known.node}, not on {node}")
        return known.attempt

    def _look_up(self, usage: PodGpuUsage) -> _Known | None:
        pod = self._api.find(PODS, usage.namespace, usage.pod)
        if pod is None or pod["metadata"]["uid"] != usage.pod_uid:
            return self._gone(usage)
        node = str((pod.get("spec") or {}).get("nodeName", ""))
        name = str((pod["metadata"].get("labels") or {}).get(RECURRENCE_LABEL, ""))
        recurrence = self._api.find(TRAINING_RECURRENCES, usage.namespace, name) if name else None
        if recurrence is None or not runs(self._api, pod, recurrence):
            return _Known(node, None, bool(name))
        return _Known(node, _attempt(recurrence), True)

    def _gone(self, usage: PodGpuUsage) -> _Known | None:
        """A pod that is gone, by what was written down of it while it was there; a Job names its pods after itself."""
        name = usage.pod.rpartition("-")[0]
        # Before the status is asked for: what is seen gets there, and is forgotten then.
        seen = self._seen(usage, name)
        recurrence = self._api.find(TRAINING_RECURRENCES, usage.namespace, name) if name else None
        pods = ((recurrence or {}).get("status") or {}).get("pods") or ()
        node = next((str(pod["node"]) for pod in pods if pod["uid"] == usage.pod_uid), seen)
        return None if recurrence is None or not node else _Known(node, _attempt(recurrence), True)

    def _seen(self, usage: PodGpuUsage, name: str) -> str:
        """The node of a pod that this operator has seen and not written down yet; empty: it has not."""
        key = (usage.namespace, name)
        job, recurrence = self._cache.workloads.get(key), self._cache.recurrences.get(key)
        pod = self._cache.pods.get((usage.namespace, usage.pod))
        if job is None or recurrence is None or pod is None or pod.uid != usage.pod_uid:
            return ""
        workload = recurrence.value.status.workload_ref
        owned = is_pod_of_job(pod.value["metadata"], job.uid)
        ours = owned and workload is not None and workload.uid == job.uid
        return str(pod.value["spec"]["nodeName"] or "") if ours else ""


def _attempt(recurrence: Mapping[str, Any]) -> PodAttempt:
    spec = recurrence["spec"]
    return PodAttempt(
        namespace=str(recurrence["metadata"]["namespace"]),
        job=str(spec["jobRef"]["name"]),
        job_uid=str(spec["jobRef"]["uid"]),
        recurrence=int(spec["index"]),
        attempt=int(spec["attempt"]),
    )
