"""Why no pod of a workload can be created is read from Events: late, ever less often, and only while one is missing."""

from dataclasses import replace
from typing import Any

import pytest

from support.recurrence_objects import recurrence_object
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.workload_waits import RefusedPods
from wattloop_operator.domain.snapshot import QueueWait, WorkloadPhase, WorkloadState

QUOTA = 'pods "digits-0-x" is forbidden: exceeded quota: gpus, requested: 1, used: 4, limited: 4'
RECURRENCE = TrainingRecurrence.from_wire(recurrence_object("digits-0"))
JOB = (RECURRENCE.metadata.namespace, RECURRENCE.spec.job_ref.name)
PENDING = WorkloadState("digits-0", uid="u")


def event(message: str, at: str = "12:00", name: str = "digits-0") -> dict[str, Any]:
    about = {"kind": "Job", "name": name, "uid": "u"}
    return {"involvedObject": about, "message": message, "lastTimestamp": f"2026-03-01T{at}:00Z"}


class _Server:
    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.selectors: list[str] = []
        self.fails = False
        self.now = 0.0
        self.pods = RefusedPods(ClusterApi(self), lambda: self.now)

    def __call__(self, request: Request) -> dict[str, Any]:
        if self.fails:
            raise StatusError(request, 403, "Forbidden", "forbidden")
        self.selectors.append(request.query["fieldSelector"])
        return {"metadata": {"resourceVersion": "1"}, "items": self.events}

    def state(self, state: WorkloadState = PENDING, *, lacks_pods: bool = True) -> WorkloadState:
        return self.pods.state(state, RECURRENCE, lacks_pods=lacks_pods)

    def after(self, seconds: float, state: WorkloadState = PENDING) -> WorkloadState:
        self.state(state)
        self.now += seconds
        return self.state(state)


def test_the_latest_refusal_is_what_the_attempt_waits_for() -> None:
    server = _Server(event("older", "11:00"), event(QUOTA), event("oldest", "10:00"))
    assert server.state() == PENDING
    state = server.after(5.0)
    assert (state.wait_reason, state.message) == ("FailedCreate", f"a pod of it cannot be created: {QUOTA}")
    assert server.selectors == ["reason=FailedCreate,involvedObject.kind=Job,involvedObject.uid=u"]
    assert server.state(lacks_pods=False) == PENDING
    assert server.pods.reads.poll_seconds(JOB) is None


def test_events_are_read_ever_less_often() -> None:
    server = _Server()
    server.state()
    delays = []
    for _ in range(6):
        delays.append(server.pods.reads.poll_seconds(JOB))
        server.now += delays[-1] or 0.0
        server.state()
    assert delays == [5, 10, 20, 40, 40, 40]
    assert len(server.selectors) == 6


def test_of_another_kind_the_events_of_the_jobs_that_it_makes_count() -> None:
    others = event("another's", "13:00", "digits-01-workers-0")
    server = _Server(event(QUOTA, name="digits-0-workers-0"), others)
    assert QUOTA in server.after(5.0, replace(PENDING, kind="JobSet")).message


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": WorkloadPhase.RUNNING},
        {"owned": False},
        {"suspended": True},
        {"queue": QueueWait("team", "Pending", "no quota")},
        {"wait_reason": "Unschedulable", "message": "0/3 nodes"},
    ],
)
def test_nothing_is_read_of_a_workload_that_waits_for_no_pod(changes: dict[str, Any]) -> None:
    server = _Server(event(QUOTA))
    state = replace(PENDING, **changes)
    assert server.after(60.0, state) == state
    assert server.selectors == []


def test_a_reason_remains_while_events_cannot_be_read() -> None:
    server = _Server(event(QUOTA))
    server.after(5.0)
    server.fails = True
    assert QUOTA in server.after(10.0).message
    server.fails, server.events = False, []
    assert server.after(20.0) == PENDING
