"""The state of a workload of any kind, from its object and its pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadPod, WorkloadState
from wattloop_operator.workloads.container_status import killed_ranks, undelivered_reports
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import (
    Pod,
    all_running_since,
    has_ended,
    image_digest,
    started_at,
    unhealthy_devices,
    workload_pod,
)
from wattloop_operator.workloads.workload_kind import WorkloadKind, as_object


def state_of(
    kind: WorkloadKind, body: Mapping[str, Any], pods: Sequence[Pod], recurrence_uid: str, container: str = ""
) -> WorkloadState:
    """The state of a workload.

    Args:
        kind: Its kind.
        body: The object.
        pods: Its pods in their last known state, deleted ones included.
        recurrence_uid: Uid of the recurrence of its name.
        container: Name of the training container.
    """
    metadata, observed, unhealthy = body["metadata"], kind.observe(body, pods), unhealthy_devices(pods)
    failure, runs = observed.failure, observed.phase is WorkloadPhase.RUNNING
    owners = defaultdict(set)
    for pod in pods:
        owners[workload_pod(pod).index].add(controller_uid(pod.get("metadata") or {}))

    def distinct(pod: WorkloadPod) -> WorkloadPod:
        # Pods of several Jobs may have one index: each Job of a JobSet counts its own pods from 0.
        return replace(pod, index=None) if len(owners[pod.index]) > 1 else pod

    started = started_at(pods)
    if started is None and observed.phase is not WorkloadPhase.PENDING:
        started = observed.started_at
    if observed.phase is WorkloadPhase.PENDING:
        message = observed.wait.message
    else:
        message = failure.message if failure is not None else unhealthy or observed.message
    # Of a kind whose pods are not known, the object alone says since when it runs.
    running_since = all_running_since(pods, kind.pods(as_object(body.get("spec")))) if pods else observed.since
    return WorkloadState(
        name=str(metadata["name"]),
        api_version=str(body.get("apiVersion", "batch/v1")),
        kind=str(body.get("kind", "Job")),
        uid=str(metadata.get("uid", "")),
        phase=observed.phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=started,
        all_running_since=running_since if runs else None,
        ended_at=observed.since if observed.phase.ended else None,
        terminating=metadata.get("deletionTimestamp") is not None,
        failure=None if failure is None else failure.failure,
        failed_pod=None if failure is None or failure.pod is None else distinct(failure.pod),
        exit_code=None if failure is None else failure.exit_code,
        output="" if failure is None else failure.output,
        log="" if failure is None else failure.log,
        killed_ranks=killed_ranks(pods) if failure is not None else (),
        message=message,
        wait_reason=observed.wait.reason,
        suspended=observed.suspended,
        unhealthy=unhealthy,
        pods=tuple(distinct(each) for each in map(workload_pod, pods) if each.uid and each.node),
        pods_ended=bool(pods) and all(map(has_ended, pods)),
        image_digest=image_digest(pods, container),
        may_run_again=observed.may_run_again,
        backs_off=observed.backs_off,
        undelivered=undelivered_reports(pods),
    )
