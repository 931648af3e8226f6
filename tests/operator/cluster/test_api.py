"""Errors, lists and paths of the API server."""

from typing import Any

import pytest

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import (
    JOBS,
    PODS,
    RECURRING_TRAINING_JOBS,
    AlreadyExistsError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
)
from wattloop_operator.cluster.api_transport import Request, StatusError, fenced


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (404, "NotFound", "no such job", NotFoundError),
        (409, "AlreadyExists", "already exists", AlreadyExistsError),
        (409, "Conflict", "the object has been modified", ConflictError),
        (422, "Invalid", "spec.template: Required value", RejectedError),
        (400, "BadRequest", "unknown field", RejectedError),
        (403, "Forbidden", "jobs.batch is forbidden", RejectedError),
        (403, "Forbidden", "exceeded quota: few", OperationError),
        (403, "Forbidden", "unable to create: namespace team is being terminated", OperationError),
        (410, "Expired", "too old", OperationError),
    ],
)
def test_callers_can_distinguish_errors(status: int, reason: str, message: str, error: type[Exception]) -> None:
    def reject(request: Request) -> dict[str, Any]:
        raise StatusError(request, status, reason, message)

    with pytest.raises(error):
        ClusterApi(reject).create(JOBS, {"metadata": {"namespace": "team", "name": "a"}})


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
def test_deleting_a_missing_or_newer_object_is_no_error(status: int, reason: str) -> None:
    def reject(request: Request) -> dict[str, Any]:
        raise StatusError(request, status, reason, "")

    ClusterApi(reject).delete(JOBS, "team", "a", "uid")


@pytest.mark.parametrize(
    ("groups", "resources", "listed"),
    [
        (["batch", "wattloop.dev"], [{"kind": "RecurringTrainingJob", "name": "recurringtrainingjobs"}], True),
        (["batch", "wattloop.dev"], [{"kind": "FrequencyPlan", "name": "frequencyplans"}], False),
        (["batch", "wattloop.dev"], None, False),
        (["batch"], [{"kind": "RecurringTrainingJob", "name": "recurringtrainingjobs"}], False),
    ],
)
def test_a_kind_is_listed_by_its_group_and_its_version(
    groups: list[str], resources: list[dict[str, str]] | None, listed: bool
) -> None:
    def answer(request: Request) -> dict[str, Any]:
        if request.path == "/apis":
            return {"groups": [{"name": name} for name in groups]}
        assert request.path == "/apis/wattloop.dev/v1alpha1"
        if resources is None:
            raise StatusError(request, 404, "NotFound", "the server could not find the requested resource")
        return {"resources": resources}

    assert ClusterApi(answer).lists(RECURRING_TRAINING_JOBS) is listed


def test_a_list_is_read_to_its_last_page() -> None:
    pages = {
        None: {"items": [{"n": 1}], "metadata": {"resourceVersion": "7", "continue": "next"}},
        "next": {"items": [{"n": 2}], "metadata": {"resourceVersion": "7"}},
    }
    found, version = ClusterApi(lambda request: pages[request.query.get("continue")]).list(PODS)
    assert (found, version) == ([{"n": 1}, {"n": 2}], "7")


def test_without_the_lead_reads_pass_and_writes_fail() -> None:
    sent: list[str] = []

    def send(request: Request) -> dict[str, Any]:
        sent.append(request.method)
        return {}

    transport = fenced(send, lambda: False)
    transport(Request("GET", "/api"))
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        with pytest.raises(OperationError, match="no longer leads"):
            transport(Request(method, "/api"))
    assert sent == ["GET"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("team", "a"), "/api/v1/namespaces/team/pods/a"),
        (RECURRING_TRAINING_JOBS.path("team"), "/apis/wattloop.dev/v1alpha1/namespaces/team/recurringtrainingjobs"),
        (JOBS.path("team", "a", "status"), "/apis/batch/v1/namespaces/team/jobs/a/status"),
        (JOBS.path("../x", "a/b"), "/apis/batch/v1/namespaces/..%2Fx/jobs/a%2Fb"),
    ],
)
def test_a_path_is_that_of_the_kind(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("api_version", ["../api/v1/namespaces/x/pods?y=/v1", "a/v1?limit=1", "../v1", ".", ""])
def test_what_a_user_names_leads_to_no_other_path(api_version: str) -> None:
    paths: list[str] = []

    def missing(request: Request) -> dict[str, Any]:
        paths.append(request.path)
        raise StatusError(request, 404, "NotFound", "not found")

    with pytest.raises(RejectedError):
        ClusterApi(missing).resource_of(api_version, "Job")
    with pytest.raises(RejectedError, match="a part that is no name"):
        ClusterApi(missing).find(JOBS, "team", "..")
    assert not any("?" in path or path.count("/") != 3 for path in paths)
