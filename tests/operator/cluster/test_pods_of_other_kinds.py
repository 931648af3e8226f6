"""The pods of a workload of another kind than Job: those that it controls, or that objects of it control."""

from typing import Any

import pytest

from support.recurrence_objects import recurrence_object
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.auth.authorizers import runs
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.workloads.injection import ClusterAddresses

NAME = "digits-0"
GROUP = "jobset.x-k8s.io/v1alpha2"
SPEC = {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}}}]}
JOB = RecurringTrainingJob.from_wire(
    {
        "metadata": {"name": "digits", "namespace": "team", "uid": "job-uid"},
        "spec": {
            "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 5},
            "batchSize": {"default": 64, "candidates": [64]},
            "template": {"apiVersion": GROUP, "kind": "JobSet", "spec": SPEC},
        },
    }
)
RECURRENCE = recurrence_object(NAME)


def controlled(name: str, uid: str, kind: str, owner: str, owner_uid: str, **labels: str) -> dict[str, Any]:
    version = "batch/v1" if kind == "Job" else GROUP
    reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": owner_uid, "controller": True}
    metadata = {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "6", "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": [reference]}}


def pod(name: str, kind: str, owner: str, owner_uid: str, **labels: str) -> dict[str, Any]:
    labels = {"wattloop.dev/job": "digits", "wattloop.dev/recurrence": NAME} | labels
    return controlled(name, f"{name}-uid", kind, owner, owner_uid, **labels) | {"spec": {"nodeName": "node-1"}}


def counted_by(uid: str) -> dict[str, str]:
    return {"batch.kubernetes.io/controller-uid": uid}


class _Server:
    """Answers for one JobSet and the Jobs of the namespace."""

    def __init__(self, jobs: dict[str, dict[str, Any]]) -> None:
        self._jobs = jobs
        self.job_requests = 0

    def __call__(self, request: Request) -> dict[str, Any]:
        folder, _, name = request.path.rpartition("/")
        if request.path == f"/apis/{GROUP}":
            return {"resources": [{"kind": "JobSet", "name": "jobsets"}]}
        if folder.endswith("/jobsets"):
            job_set = controlled(NAME, "job-set-uid", "TrainingRecurrence", NAME, "recurrence-uid")
            return {"apiVersion": GROUP, "kind": "JobSet", **job_set}
        self.job_requests += 1
        if name in self._jobs:
            return self._jobs[name]
        raise StatusError(request, 404, "NotFound", "not found")


INNER = controlled("digits-0-a", "inner-uid", "JobSet", NAME, "job-set-uid")
FOREIGN = controlled("foreign", "foreign-uid", "JobSet", "other", "other-uid")


@pytest.mark.parametrize(
    ("found", "belongs"),
    [
        (pod("p", "JobSet", NAME, "job-set-uid"), True),
        (pod("p", "JobSet", NAME, "other-uid"), False),
        (pod("p", "Job", "digits-0-a", "inner-uid", **counted_by("inner-uid")), True),
        # Its creator wrote the owner; the Job controller does not count it.
        (pod("p", "Job", "digits-0-a", "inner-uid"), False),
        (pod("p", "Job", "digits-0-a", "earlier-uid", **counted_by("earlier-uid")), False),
        (pod("p", "Job", "foreign", "foreign-uid", **counted_by("foreign-uid")), False),
        (pod("p", "Job", "absent", "absent-uid", **counted_by("absent-uid")), False),
    ],
)
def test_the_chain_of_controllers_decides_whether_a_pod_belongs_to_a_workload(
    found: dict[str, Any], belongs: bool
) -> None:
    server, cache = _Server({"digits-0-a": INNER, "foreign": FOREIGN}), ObjectCache()
    cache.put_recurrence(RECURRENCE)
    cache.put_pod(found)
    access = WorkloadAccess(
        ClusterApi(server), cache, lambda: ClusterAddresses(report_url="http://operator"), lambda: 0.0
    )
    recurrence = TrainingRecurrence.from_wire(RECURRENCE)
    for _ in range(3):
        assert [each.name for each in access.state(JOB, recurrence).pods] == (["p"] if belongs else [])
    # Also where there is none: its owner's uid never returns.
    assert server.job_requests <= 1


def refused(request: Request) -> dict[str, Any]:
    raise StatusError(request, 403, "Forbidden", "jobs.batch is forbidden")


def test_a_pod_whose_owner_cannot_be_read_counts_for_no_attempt_and_stops_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = pod("p", "Job", "digits-0-a", "inner-uid", **counted_by("inner-uid"))
    unknown = pod("q", "Job", "digits-0-b", "other-uid", **counted_by("other-uid"))
    unknown["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v9"
    server, cache = _Server({}), ObjectCache()
    api = ClusterApi(lambda request: refused(request) if "/jobs/" in request.path else server(request))
    cache.put_recurrence(RECURRENCE)
    for each in (inner, unknown, pod("own", "JobSet", NAME, "job-set-uid")):
        cache.put_pod(each)
    access = WorkloadAccess(api, cache, lambda: ClusterAddresses(report_url="http://operator"), lambda: 0.0)
    assert [each.name for each in access.state(JOB, TrainingRecurrence.from_wire(RECURRENCE)).pods] == ["own"]
    assert "Job team/digits-0-a cannot be read, so its pods count for no attempt: " in caplog.text
    assert "Job team/digits-0-b cannot be read" in caplog.text


TRAINER, TRAIN_JOB = "trainer.kubeflow.org/v1alpha1", ("trainer.kubeflow.org/v1alpha1", "TrainJob")


def owned(name: str, uid: str, owner: tuple[str, str], owner_uid: str) -> dict[str, Any]:
    reference = {"apiVersion": owner[0], "kind": owner[1], "name": NAME, "uid": owner_uid, "controller": True}
    return {"metadata": {"name": name, "namespace": "team", "uid": uid, "ownerReferences": [reference]}}


def test_a_pod_of_a_job_of_the_job_set_of_a_train_job_belongs_to_it() -> None:
    """The chain has two objects between, and a JobSet of another TrainJob leads elsewhere."""
    job_set = owned(NAME, "job-set-uid", TRAIN_JOB, "train-job-uid")
    found = {
        f"/apis/{TRAINER}": {"resources": [{"kind": "TrainJob", "name": "trainjobs"}]},
        f"/apis/{GROUP}": {"resources": [{"kind": "JobSet", "name": "jobsets"}]},
        f"/apis/batch/v1/namespaces/team/jobs/{NAME}-node-0": owned("p", "inner-uid", (GROUP, "JobSet"), "job-set-uid"),
        f"/apis/{GROUP}/namespaces/team/jobsets/{NAME}": job_set,
    }
    body = pod("p-0", "Job", f"{NAME}-node-0", "inner-uid", **counted_by("inner-uid"))
    api = ClusterApi(lambda request: found[request.path])
    recurrence = {"status": {"workloadRef": {"apiVersion": TRAINER, "kind": "TrainJob", "uid": "train-job-uid"}}}
    assert runs(api, body, recurrence)
    assert not runs(api, body, {"status": {"workloadRef": {"apiVersion": GROUP, "kind": "JobSet", "uid": "other"}}})
    job_set["metadata"]["ownerReferences"][0]["uid"] = "another-uid"
    assert not runs(api, body, recurrence)
