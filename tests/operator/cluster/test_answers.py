"""What the API server's errors mean to callers."""

from __future__ import annotations

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
from wattloop_operator.cluster.transport import Request, StatusError, fenced


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (404, "NotFound", "no such job", NotFoundError),
        (409, "AlreadyExists", "there already", AlreadyExistsError),
        (409, "Conflict", "the object has been modified", ConflictError),
        (422, "Invalid", "spec.template: Required value", RejectedError),
        (400, "BadRequest", "unknown field", RejectedError),
        (403, "Forbidden", "jobs.batch is forbidden", RejectedError),
        (403, "Forbidden", "exceeded quota: few", OperationError),
        (403, "Forbidden", "unable to create: namespace team is being terminated", OperationError),
        (410, "Expired", "too old", OperationError),
    ],
)
def test_an_error_is_told_apart(status: int, reason: str, message: str, error: type[Exception]) -> None:
    def refuse(request: Request) -> dict[str, Any]:
        raise StatusError(request, status, reason, message)

    with pytest.raises(error):
        ClusterApi(refuse).create(JOBS, {"metadata": {"namespace": "team", "name": "a"}})


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
def test_deleting_what_is_gone_or_another_by_now_is_no_error(status: int, reason: str) -> None:
    def refuse(request: Request) -> dict[str, Any]:
        raise StatusError(request, status, reason, "")

    ClusterApi(refuse).delete(JOBS, "team", "a", "uid")


def test_a_list_is_read_to_its_last_page() -> None:
    pages = {
        None: {"items": [{"n": 1}], "metadata": {"resourceVersion": "7", "continue": "next"}},
        "next": {"items": [{"n": 2}], "metadata": {"resourceVersion": "7"}},
    }
    found, version = ClusterApi(lambda request: pages[request.query.get("continue")]).list(PODS)
    assert (found, version) == ([{"n": 1}, {"n": 2}], "7")


def test_without_the_lead_nothing_is_written_and_everything_read() -> None:
    carried: list[str] = []

    def carry(request: Request) -> dict[str, Any]:
        carried.append(request.method)
        return {}

    transport = fenced(carry, lambda: False)
    transport(Request("GET", "/api"))
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        with pytest.raises(OperationError, match="does not lead any more"):
            transport(Request(method, "/api"))
    assert carried == ["GET"]


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
def test_an_address_is_that_of_the_kind(path: str, expected: str) -> None:
    assert path == expected
