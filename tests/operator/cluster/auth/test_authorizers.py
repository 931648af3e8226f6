"""Which tokens are authorized, and how often they are checked.

tests/cluster/operator/test_reports.py uses real tokens.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from support.reporting.json_web_token import json_web_token
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.cluster.auth.authorizers import AUTHORIZED_SECONDS, DENIED_SECONDS, ClusterAuthorizer
from wattloop_operator.cluster.auth.token_review import REJECTED_SECONDS, TokenReviews
from wattloop_operator.reporting.interfaces import BearerToken, OwnershipError, UnknownCallerError
from wattloop_operator.workloads.injection import AUDIENCE

TOKEN = BearerToken(json_web_token("pod"))


class Server:
    """An API server with one pod of one recurrence."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.now = 0.0
        self.review: dict[str, Any] = {
            "authenticated": True,
            "audiences": [AUDIENCE],
            "user": {
                "username": "system:serviceaccount:team:default",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["pod"],
                    "authentication.kubernetes.io/pod-uid": ["pod-uid"],
                },
            },
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "job-uid", "controller": True}
        self.pod: dict[str, Any] = {
            "metadata": {
                "name": "run-abc",
                "namespace": "team",
                "uid": "pod-uid",
                "labels": {"batch.kubernetes.io/controller-uid": "job-uid"},
                "ownerReferences": [owner],
                "creationTimestamp": "2026-03-01T12:00:01Z",
            },
            "spec": {"serviceAccountName": "default"},
        }
        self.job: dict[str, Any] = {
            "metadata": {"name": "run", "uid": "job-uid", "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"template": {"spec": {}}},
        }
        self.workload: dict[str, str] | None = {"uid": "job-uid"}
        self.counted: list[str] = []
        self.authorizer = ClusterAuthorizer(
            ClusterApi(self), TokenReviews(ClusterApi(self), lambda: self.now, self._count), lambda: self.now
        )

    def __call__(self, request: Request) -> dict[str, Any]:
        kind = request.path.rsplit("/", 2)[-2 if request.method == "GET" else -1]
        self.requests[kind] += 1
        if kind == "tokenreviews":
            return {"status": self.review}
        if kind == "pods":
            return self.pod
        if kind == "jobs":
            return self.job
        return {"metadata": {"uid": "recurrence-uid"}, "status": {"workloadRef": self.workload}}

    def _count(self, address: str) -> None:
        self.counted.append(address)


@pytest.fixture
def server() -> Server:
    return Server()


def test_an_authorized_token_is_not_reviewed_again_for_a_while(server: Server) -> None:
    assert server.authorizer.authorize(TOKEN, "team", "run") == "pod-uid"
    assert server.authorizer.authorize(TOKEN, "team", "run") == "pod-uid"
    assert server.requests["tokenreviews"] == 1
    server.now = AUTHORIZED_SECONDS
    server.authorizer.authorize(TOKEN, "team", "run")
    assert server.requests["tokenreviews"] == 2


def test_an_authorization_is_valid_for_one_recurrence(server: Server) -> None:
    server.authorizer.authorize(TOKEN, "team", "run")
    server.authorizer.authorize(TOKEN, "team", "another")
    assert server.requests["tokenreviews"] == 2


@pytest.mark.parametrize(
    "review",
    [
        {"authenticated": False},
        {"authenticated": True, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True},
    ],
)
def test_a_token_that_the_server_does_not_authenticate_is_unknown(review: dict[str, Any], server: Server) -> None:
    server.review = review | {"user": server.review["user"]}
    with pytest.raises(UnknownCallerError):
        server.authorizer.authorize(TOKEN, "team", "run")


@pytest.mark.parametrize(
    ("username", "extra"),
    [("system:serviceaccount:team:default", {}), ("alice", None), ("system:serviceaccount:team:default", {"x": ["y"]})],
)
def test_a_token_of_no_pod_is_unknown(username: str, extra: dict[str, Any] | None, server: Server) -> None:
    user = server.review["user"]
    server.review["user"] = {"username": username, "extra": user["extra"] if extra is None else extra}
    with pytest.raises(UnknownCallerError, match="no pod"):
        server.authorizer.authorize(TOKEN, "team", "run")


def test_a_new_pod_of_the_same_name_is_denied(server: Server) -> None:
    server.pod["metadata"]["uid"] = "another"
    with pytest.raises(OwnershipError):
        server.authorizer.authorize(TOKEN, "team", "run")


def test_a_pod_of_another_namespace_is_not_looked_up(server: Server) -> None:
    with pytest.raises(OwnershipError):
        server.authorizer.authorize(TOKEN, "other", "run")
    assert server.requests["pods"] == 0


@pytest.mark.parametrize(
    "token", ["", "x" * 10_000, "garbage", "a.b.c", "a.!!.c", json_web_token("x", "another"), json_web_token("x", 7)]
)
def test_a_text_that_cannot_be_a_token_is_not_reviewed(token: str, server: Server) -> None:
    with pytest.raises(UnknownCallerError):
        server.authorizer.authorize(BearerToken(token), "team", "run")
    assert not server.requests


def test_a_problem_of_the_server_is_not_a_denial(server: Server) -> None:
    def unreachable(_: Request) -> dict[str, Any]:
        raise OperationError("away")

    api = ClusterApi(unreachable)
    authorizer = ClusterAuthorizer(api, TokenReviews(api, lambda: 0.0), lambda: 0.0)
    with pytest.raises(OperationError):
        authorizer.authorize(TOKEN, "team", "run")


def test_a_rejected_token_is_not_reviewed_again_for_a_while(server: Server) -> None:
    server.review = {"authenticated": False}
    for _ in range(5):
        with pytest.raises(UnknownCallerError, match="not one of this cluster"):
            server.authorizer.authorize(TOKEN, "team", "run")
    assert server.requests["tokenreviews"] == 1
    server.now = REJECTED_SECONDS
    with pytest.raises(UnknownCallerError):
        server.authorizer.authorize(TOKEN, "team", "run")
    assert server.requests["tokenreviews"] == 2


def test_a_denied_pod_is_not_looked_up_again_for_a_while(server: Server) -> None:
    server.pod["metadata"]["ownerReferences"][0]["uid"] = "another"
    for _ in range(5):
        with pytest.raises(OwnershipError):
            server.authorizer.authorize(TOKEN, "team", "run")
    assert (server.requests["tokenreviews"], server.requests["pods"]) == (1, 1)
    server.now = DENIED_SECONDS
    server.pod["metadata"]["ownerReferences"][0]["uid"] = "job-uid"
    server.authorizer.authorize(TOKEN, "team", "run")


def test_only_reviews_of_unknown_tokens_are_counted_by_address(server: Server) -> None:
    server.authorizer.authorize(TOKEN, "team", "run", "10.0.0.1")
    server.now = AUTHORIZED_SECONDS
    server.authorizer.authorize(TOKEN, "team", "run", "10.0.0.1")
    assert server.requests["tokenreviews"] == 2
    assert server.counted == ["10.0.0.1"]


def test_a_recurrence_without_a_workload_in_its_status_is_checked_again(server: Server) -> None:
    server.workload = None
    with pytest.raises(OperationError, match="is not in its status yet"):
        server.authorizer.authorize(TOKEN, "team", "run")
    server.workload = {"uid": "job-uid"}
    server.authorizer.authorize(TOKEN, "team", "run")


def forged_owner(server: Server) -> None:
    """A Job of the user's own that names the recurrence as its controller, and a pod of that Job."""
    server.job["metadata"] |= {"uid": "own-job", "ownerReferences": [{"uid": "recurrence-uid", "controller": True}]}
    server.pod["metadata"]["ownerReferences"][0]["uid"] = "own-job"
    server.pod["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "own-job"}


def no_label(server: Server) -> None:
    server.pod["metadata"]["labels"] = {}


def another_name(server: Server) -> None:
    server.pod["metadata"]["name"] = "impostor"


def older_than_its_job(server: Server) -> None:
    server.pod["metadata"]["creationTimestamp"] = "2026-03-01T11:59:59Z"


def another_service_account(server: Server) -> None:
    server.pod["spec"]["serviceAccountName"] = "impostor"


def another_kind(server: Server) -> None:
    server.pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "batch.volcano.sh/v1alpha1", "uid": "x"}


FORGERIES = [forged_owner, no_label, another_name, older_than_its_job, another_service_account, another_kind]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_pod_not_created_by_the_job_controller_is_denied(server: Server, forge: Callable[[Server], None]) -> None:
    forge(server)
    with pytest.raises(OwnershipError, match=r"does not run team/run"):
        server.authorizer.authorize(TOKEN, "team", "run")


def test_a_pod_of_a_job_of_the_workload_is_authorized(server: Server) -> None:
    server.workload = {"uid": "job-set"}
    server.job["metadata"]["ownerReferences"] = [{"uid": "job-set", "controller": True}]
    server.authorizer.authorize(TOKEN, "team", "run")
