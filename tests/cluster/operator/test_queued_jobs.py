"""Jobs in a queue on the real API server and the real Job controller; the test admits and evicts in Kueue's place.

Kueue's own definition of Workloads is installed, so its schema checks what the test writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kubernetes.dynamic import DynamicClient

from support.binaries.build import KUEUE
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition
from support.control_plane.in_process_operator import TestClock
from support.control_plane.objects import JOB, get_object, list_objects
from support.control_plane.waiting import wait_until
from wattloop_operator.domain.names import JOB_LABEL

VERSION = "kueue.x-k8s.io/v1beta2"
DEFINITION = ("config", "components", "crd", "bases", "kueue.x-k8s.io_workloads.yaml")
NO_QUOTA = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
HOUR_SECONDS = 3600


@pytest.fixture(scope="module", autouse=True)
def _workloads(kubectl: ClusterCommand) -> Iterator[None]:
    """The definition of Kueue's Workloads."""
    if shutil.which("go") is None:
        pytest.skip("no Go, which downloads the definition of Workloads")
    definition = KUEUE.sources().joinpath(*DEFINITION)
    kubectl("apply", "--server-side", f"--filename={definition}")
    kubectl("wait", "--for=condition=Established", f"--filename={definition}", "--timeout=150s")
    yield
    kubectl("delete", f"--filename={definition}", "--wait=false")


class StandIn:
    """Does for one Job what Kueue does: it suspends and resumes it, and writes the conditions of its Workload."""

    def __init__(self, cluster: DynamicClient, namespace: str, name: str) -> None:
        self._jobs = cluster.resources.get(api_version="batch/v1", kind="Job")
        self._workloads = cluster.resources.get(api_version=VERSION, kind="Workload")
        self._namespace, self._name = namespace, name
        job = get_object(cluster, JOB, namespace, name)
        self.queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        self.suspend(suspended=True)
        template = {
            "spec": {"containers": [{"name": "train", "image": "x", "resources": {}}], "restartPolicy": "Never"}
        }
        metadata = {"name": f"job-{name}", "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}}
        pods = [{"name": "main", "count": 1, "template": template}]
        body = {"apiVersion": VERSION, "kind": "Workload", "metadata": metadata}
        body["spec"] = {"queueName": self.queue, "podSets": pods}
        self.created = self._workloads.create(body=body, namespace=namespace).metadata.creationTimestamp

    def suspend(self, *, suspended: bool) -> None:
        """Suspend or resume the Job."""
        body = {"spec": {"suspend": suspended}}
        content = "application/merge-patch+json"
        self._jobs.patch(body=body, name=self._name, namespace=self._namespace, content_type=content)

    def write(self, *conditions: tuple[str, bool, str, str]) -> None:
        """Write the conditions of the Workload."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        written = [
            {"type": kind, "status": str(holds), "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, holds, reason, message in conditions
        ]
        self._workloads.status.patch(
            body={"status": {"conditions": written}},
            name=f"job-{self._name}",
            namespace=self._namespace,
            content_type="application/merge-patch+json",
        )


def queued(driven: DrivenJob, attempt: int = 0) -> StandIn:
    """Let an attempt wait for quota."""
    kueue = StandIn(driven.cluster, driven.key.namespace, driven.name_of(attempt))
    kueue.write(("QuotaReserved", False, "WaitingForQuota", NO_QUOTA))
    await_no_pods(driven, driven.name_of(attempt))
    driven.reconcile()
    return kueue


def admit(driven: DrivenJob, kueue: StandIn) -> None:
    kueue.write(("QuotaReserved", True, "QuotaReserved", ""), ("Admitted", True, "Admitted", ""))
    kueue.suspend(suspended=False)
    driven.reconcile()


def await_no_pods(driven: DrivenJob, name: str) -> None:
    wait_until(
        driven.cluster,
        api_version="batch/v1",
        kind="Job",
        namespace=driven.key.namespace,
        field_selector=f"metadata.name={name}",
        condition=lambda jobs: any(
            each["status"].get("conditions", [{}])[-1].get("type") == "Suspended" and not each["status"].get("active")
            for each in jobs
        ),
        what=f"the Job {name} to have no pods",
    )


def test_a_job_in_a_queue_waits_without_cost_and_learns_when_it_is_admitted(
    driven: DrivenJob, clock: TestClock
) -> None:
    driven.begin(queue={"name": "team", "priorityClass": "low"})
    kueue = queued(driven)
    shown = condition(driven.recurrence, "Queued")
    assert (shown["status"], shown["reason"]) == ("True", "WaitingForQuota")
    assert shown["message"] == f"queue team: {NO_QUOTA}"
    assert shown["lastTransitionTime"] == kueue.created
    assert condition(driven.recurrence, "Running")["reason"] == "Queued"
    assert (driven.job["status"]["state"], driven.job["status"]["failure"]) == ("Waiting", "Queued")
    assert driven.operator.backend.requeue_after_seconds(driven.key) == 10
    clock.advance(2 * HOUR_SECONDS)
    driven.reconcile()
    assert driven.results == [None]
    assert "startTime" not in driven.recurrence["status"]
    admit(driven, kueue)
    training = driven.train()
    driven.reconcile()
    assert condition(driven.recurrence, "Queued")["reason"] == "Admitted"
    driven.reach_target(training)
    assert driven.results == ["Reached"]
    assert float(driven.recurrence["status"]["usage"]["durationSeconds"]) == 20
    assert condition(driven.recurrence, "Queued")["message"].startswith("queue team: it waited 72")
    assert len(driven.learned) == 1


def test_a_preempted_job_is_disrupted_and_queues_again_and_no_batch_size_is_blamed(
    driven: DrivenJob,
) -> None:
    driven.begin(queue={"name": "team"})
    kueue = queued(driven)
    admit(driven, kueue)
    training = driven.train()
    driven.reconcile()
    assert training.report(1.0, 0.5) is not None
    kueue.write(
        ("QuotaReserved", False, "Pending", "Preempted to accommodate a workload"),
        ("Evicted", True, "Preempted", "Preempted to accommodate a workload"),
    )
    kueue.suspend(suspended=True)
    await_no_pods(driven, driven.name_of())
    driven.reconcile()
    first, second = driven.recurrences
    assert first["status"]["result"] == "Disrupted"
    assert "its queue evicted it: Preempted: Preempted to accommodate a workload" in first["status"]["message"]
    assert first["spec"]["batchSize"] == second["spec"]["batchSize"]
    assert driven.learned == ()
    jobs = list_objects(driven.cluster, JOB, driven.key.namespace, JOB_LABEL)
    assert [each["metadata"]["name"] for each in jobs] == [driven.name_of(1)]
    again = queued(driven, 1)
    assert condition(driven.recurrences[1], "Queued")["status"] == "True"
    admit(driven, again)
    driven.reach_target(driven.train(driven.name_of(1)))
    assert driven.results == ["Disrupted", "Reached"]
