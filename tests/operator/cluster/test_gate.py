"""Who was admitted is not asked about again at once; tests/cluster/operator/test_reports.py has the real tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from wattloop.errors import CannotError
from wattloop_operator.cluster.admissions import TRUSTED_SECONDS
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.gate import TokenReviewGate
from wattloop_operator.cluster.transport import Request
from wattloop_operator.reporting.seams import ForeignRecurrenceError, UnknownCallerError
from wattloop_operator.workloads.pod_template import AUDIENCE


class Server:
    """An API server with one pod of one recurrence."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
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
        self.pod_uid = "pod-uid"
        self.gate = TokenReviewGate(ClusterApi(self), lambda: self.now)

    def __call__(self, request: Request) -> dict[str, Any]:
        kind = request.path.rsplit("/", 2)[-2 if request.method == "GET" else -1]
        self.asked[kind] += 1
        if kind == "tokenreviews":
            return {"status": self.review}
        if kind == "pods":
            owner = {"kind": "Job", "name": "run", "uid": "job-uid", "controller": True}
            return {"metadata": {"name": "pod", "namespace": "team", "uid": self.pod_uid, "ownerReferences": [owner]}}
        return {"metadata": {"uid": "recurrence-uid"}, "status": {"workloadRef": {"uid": "job-uid"}}}


@pytest.fixture
def server() -> Server:
    return Server()


def test_an_admitted_token_is_trusted_for_a_while(server: Server) -> None:
    server.gate.admit("token", "team", "run")
    server.gate.admit("token", "team", "run")
    assert server.asked["tokenreviews"] == 1
    server.now = TRUSTED_SECONDS
    server.gate.admit("token", "team", "run")
    assert server.asked["tokenreviews"] == 2


def test_it_is_trusted_for_the_recurrence_alone_for_which_it_was_admitted(server: Server) -> None:
    server.gate.admit("token", "team", "run")
    server.gate.admit("token", "team", "another")
    assert server.asked["tokenreviews"] == 2


@pytest.mark.parametrize(
    "review",
    [
        {"authenticated": False},
        {"authenticated": True, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True},
    ],
)
def test_a_token_that_the_server_does_not_vouch_for_is_unknown(review: dict[str, Any], server: Server) -> None:
    server.review = review | {"user": server.review["user"]}
    with pytest.raises(UnknownCallerError):
        server.gate.admit("token", "team", "run")


@pytest.mark.parametrize(
    ("username", "extra"),
    [("system:serviceaccount:team:default", {}), ("alice", None), ("system:serviceaccount:team:default", {"x": ["y"]})],
)
def test_a_token_that_was_given_to_no_pod_is_unknown(
    username: str, extra: dict[str, Any] | None, server: Server
) -> None:
    user = server.review["user"]
    server.review["user"] = {"username": username, "extra": user["extra"] if extra is None else extra}
    with pytest.raises(UnknownCallerError, match="no pod"):
        server.gate.admit("token", "team", "run")


def test_a_pod_made_anew_under_the_name_is_another_one(server: Server) -> None:
    server.pod_uid = "another"
    with pytest.raises(ForeignRecurrenceError):
        server.gate.admit("token", "team", "run")


def test_another_namespaces_pod_is_not_even_looked_up(server: Server) -> None:
    with pytest.raises(ForeignRecurrenceError):
        server.gate.admit("token", "other", "run")
    assert server.asked["pods"] == 0


@pytest.mark.parametrize("token", ["", "x" * 10_000])
def test_what_can_be_no_token_is_not_sent_on(token: str, server: Server) -> None:
    with pytest.raises(UnknownCallerError):
        server.gate.admit(token, "team", "run")
    assert not server.asked


def test_trouble_of_the_server_is_no_refusal(server: Server) -> None:
    def away(_: Request) -> dict[str, Any]:
        raise CannotError("away")

    gate = TokenReviewGate(ClusterApi(away), lambda: 0.0)
    with pytest.raises(CannotError):
        gate.admit("token", "team", "run")
