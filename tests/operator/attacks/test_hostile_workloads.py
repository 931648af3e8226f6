"""Workloads of each kind with statuses of a megabyte, beside the state of a victim's; and Workloads of Kueue."""

import json
import time
from typing import Any

import pytest

from support.recurrence_objects import recurrence_object
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.cluster.workload_waits import FIRST_POLL_SECONDS, KueueWorkloads
from wattloop_operator.domain.snapshot import WorkloadState
from wattloop_operator.workloads.kinds import KINDS
from wattloop_operator.workloads.ownership import GroupKind
from wattloop_operator.workloads.workload_state import state_of

START = "2026-03-01T12:00:00Z"
MANY = 10_000
STATUSES: dict[str, Any] = {
    "one text": {
        "conditions": [{"type": "Failed", "status": "True", "reason": "\x1b" * 10**6, "message": "\u202e" * 10**6}],
        "jobDeploymentStatus": "Failed",
        "message": "\x07" * 10**6,
    },
    "many conditions": {
        "conditions": [
            {"type": f"T{number}", "status": "True", "message": "x" * 20, "lastTransitionTime": START}
            for number in range(MANY)
        ]
    },
    "one condition again and again": {
        "conditions": [
            {"type": "Failed", "status": str(number % 2 == 0), "message": "\x00" * 50} for number in range(MANY)
        ]
    },
    "many counts": {
        "replicatedJobsStatus": [{"name": "x", "ready": 2**63}] * MANY,
        "jobsStatus": [{"name": "x", "ready": -1}] * MANY,
        "replicaStatuses": {f"r{number}": {"active": 1e308} for number in range(MANY)},
    },
}
OWNERS = [{"apiVersion": "v1", "kind": "x" * 50, "name": "x" * 50, "uid": f"{number}"} for number in range(5_000)]


def body(kind: GroupKind, status: Any, **metadata: Any) -> dict[str, Any]:
    owner = {"uid": "recurrence-uid", "controller": True}
    own = {"name": "digits-0", "namespace": "team", "uid": "uid", "resourceVersion": "1", "creationTimestamp": START}
    return {
        "apiVersion": f"{kind[0]}/v1",
        "kind": kind[1],
        "metadata": {**own, "ownerReferences": [owner], **metadata},
        "spec": {},
        "status": status,
    }


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind[1]))
def test_a_status_of_a_megabyte_takes_milliseconds_and_gives_a_bounded_printable_message(
    kind: GroupKind, status: str
) -> None:
    def seconds_and_state(read: Any, **metadata: Any) -> tuple[float, WorkloadState]:
        began = time.thread_time()
        state = state_of(KINDS[kind], body(kind, read, **metadata), [], "recurrence-uid", "train")
        return time.thread_time() - began, state

    alone, victim = seconds_and_state({})
    seconds, hostile = seconds_and_state(
        STATUSES[status],
        labels={f"l{number}": "x" * 63 for number in range(MANY)},
        ownerReferences=[*OWNERS, {"uid": "recurrence-uid", "controller": True}],
    )
    beside, again = seconds_and_state({})
    print(f"{kind[1]}, {status}: {seconds * 1000:.1f} ms; a victim {alone * 1000:.1f} and {beside * 1000:.1f} ms")
    assert seconds < 1
    assert hostile.owned
    assert hostile.message.isprintable()
    # Two texts of 2,048 characters, of which each may be escaped.
    assert len(hostile.message) < 2 * 2_048 * len("\\u202e") + 100
    assert again == victim


class Server:
    """An API server with a Workload that anyone may have made."""

    def __init__(self) -> None:
        self.lists = 0
        self.owner = {"uid": "uid", "controller": True}
        self.conditions: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.path == "/apis/kueue.x-k8s.io":
            return {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}}
        self.lists += 1
        metadata = {"name": "w", "creationTimestamp": START, "ownerReferences": [self.owner]}
        found = {"metadata": metadata, "spec": {}, "status": {"conditions": self.conditions}}
        page = {"items": [found], "metadata": {"resourceVersion": "1"}}
        answer: dict[str, Any] = request.parse(json.dumps(page).encode())
        return answer


@pytest.mark.parametrize("changes", exhaustive_after([300, 3_000]))
def test_a_suspended_workload_that_changes_hundreds_of_times_a_second_is_looked_up_once_a_second(changes: int) -> None:
    server, now = Server(), [0.0]
    queued = KueueWorkloads(ClusterApi(server), lambda: now[0])
    recurrence = TrainingRecurrence.from_wire(recurrence_object("digits-0"))
    kind = ("batch", "Job")

    def waits(version: int) -> str:
        child = body(kind, {}, labels={"kueue.x-k8s.io/queue-name": "team"}, resourceVersion=f"{version}")
        state = queued.state(WorkloadState("digits-0", uid="uid"), child | {"spec": {"suspend": True}}, recurrence)
        return state.queue.reason

    seconds = changes / 300
    for version in range(changes):
        server.conditions = [{"type": "QuotaReserved", "status": "False", "reason": f"R{version}", "message": ""}]
        waits(version)
        now[0] += 1 / 300
    assert server.lists <= seconds / (0.9 * FIRST_POLL_SECONDS) + 1
    # The last one is read within a second.
    assert queued.reads.poll_seconds(("team", "digits")) == FIRST_POLL_SECONDS
    now[0] += FIRST_POLL_SECONDS
    assert waits(changes) == f"R{changes - 1}"


def test_a_workload_of_kueue_that_carries_a_label_alone_evicts_no_attempt() -> None:
    server = Server()
    server.owner = {"uid": "another", "controller": True}
    server.conditions = [{"type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": START}]
    queued = KueueWorkloads(ClusterApi(server), lambda: 0.0)
    child = body(("batch", "Job"), {}, labels={"kueue.x-k8s.io/queue-name": "team"}) | {"spec": {"suspend": True}}
    recurrence = TrainingRecurrence.from_wire(recurrence_object("digits-0", status={"startTime": START}))
    assert not queued.state(WorkloadState("digits-0", uid="uid"), child, recurrence).phase.ended
    server.owner = {"uid": "uid", "controller": True}
    evicted = KueueWorkloads(ClusterApi(server), lambda: 0.0).state(WorkloadState("d", uid="uid"), child, recurrence)
    assert evicted.phase.ended
