"""The results of a cluster check; tests/cluster/chart/test_check.py uses a real server, operator and pod."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster_check import (
    NOT_PROCESSED,
    POLL_SECONDS,
    REPORT_HINT,
    VERSIONS_NOT_SEEN,
    ClusterCheck,
    check_job,
)

JOB = check_job("team-a", "check", "wattloop/operator:0.1.0")
RECURRENCE = Path(__file__).parents[1] / "manifests" / "valid" / "training-recurrence.yaml"
FORBIDDEN = (403, "Forbidden", "ann may not")


class Server:
    """An API server that stores one job and never starts it; `errors` are error responses by method."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = None
        self.errors: dict[str, tuple[int, str, str]] = {}
        self.shown: list[str] = []
        self.deployments: list[dict[str, Any]] = []
        self.recurrences: list[dict[str, Any]] = []
        self.now = 0.0
        self.check = ClusterCheck(ClusterApi(self), self.shown.append, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.method in self.errors:
            raise StatusError(request, *self.errors[request.method])
        if request.method == "POST":
            self.job = {**request.body, "metadata": {**request.body["metadata"], "uid": "1"}}
        elif request.path == "/apis/apps/v1/deployments":
            return {"metadata": {"resourceVersion": "1"}, "items": self.deployments}
        elif request.path.endswith("trainingrecurrences"):
            return {"metadata": {"resourceVersion": "1"}, "items": self.recurrences}
        elif self.job is None:
            raise StatusError(request, 404, "NotFound", "not found")
        job = dict(self.job or {})
        if request.method == "DELETE":
            self.job = None
        return job


def failure(server: Server) -> str:
    with pytest.raises(OperationError) as caught:
        server.check.run(JOB, 3 * POLL_SECONDS)
    return str(caught.value)


def test_a_job_that_no_operator_processes_fails_the_check_at_the_time_limit_and_is_deleted() -> None:
    server = Server()
    assert failure(server).endswith(f"{NOT_PROCESSED}; is the operator running, and does it hold its Lease?")
    assert server.job is None
    assert server.shown[-1] == "deleted the RecurringTrainingJob team-a/check"


def test_a_training_that_runs_without_reporting_fails_the_check_with_a_hint() -> None:
    server = Server()
    running = {"type": "Running", "status": "True", "reason": "Running", "lastTransitionTime": "2026-03-02T03:00:00Z"}
    written = yaml.safe_load(RECURRENCE.read_text(encoding="utf-8"))
    server.recurrences = [written | {"status": {"conditions": [running]}}]
    assert failure(server).endswith(f"{written['metadata']['name']}: started; {REPORT_HINT}")


@pytest.mark.parametrize(("method", "message"), [("POST", "was rejected"), ("GET", "cannot be read")])
def test_a_missing_right_fails_the_check_with_the_servers_message(method: str, message: str) -> None:
    server = Server()
    server.errors[method] = FORBIDDEN
    text = failure(server)
    assert message in text
    assert "ann may not" in text
    assert server.job is None


def test_a_short_outage_of_the_api_server_does_not_fail_the_check() -> None:
    server = Server()
    server.errors["GET"] = (503, "ServiceUnavailable", "starting")

    def recover(seconds: float) -> None:
        server.errors.clear()
        server.sleep(seconds)

    check = ClusterCheck(ClusterApi(server), server.shown.append, clock=lambda: server.now, sleep=recover)
    with pytest.raises(OperationError, match=NOT_PROCESSED):
        check.run(JOB, 3 * POLL_SECONDS)
    assert any("503" in line for line in server.shown)


def test_a_job_that_is_deleted_during_the_check_fails_it() -> None:
    server = Server()
    server.errors["GET"] = (404, "NotFound", "not found")
    assert "the RecurringTrainingJob team-a/check was deleted during the check" in failure(server)


def test_a_job_that_cannot_be_deleted_is_named_and_hides_no_failure() -> None:
    server = Server()
    server.errors["DELETE"] = FORBIDDEN
    assert NOT_PROCESSED in failure(server)
    assert server.shown[-1].startswith("delete the RecurringTrainingJob team-a/check manually: ")


def test_an_api_server_that_never_answers_fails_the_check_at_the_time_limit() -> None:
    server = Server()
    server.errors["GET"] = (503, "ServiceUnavailable", "starting")
    assert "its last state: " in failure(server)


def deployment(image: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}}}


def test_versions_that_do_not_fit_together_fail_a_check_whose_training_runs() -> None:
    server = Server()
    written = yaml.safe_load(RECURRENCE.read_text(encoding="utf-8"))
    server.recurrences = [written | {"status": {"result": "Reached"}}]
    server.deployments = [
        deployment("registry.k8s.io/kueue/kueue:v0.19.2"),
        deployment("ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.1.0"),
        deployment("mirror.example/other/thing:v1.0.0"),
    ]
    text = failure(server)
    assert server.shown[0] == "found Kubeflow Trainer 2.1.0, Kueue 0.19.2"
    assert "a training runs, but Kueue 0.19.2 was built for Kubeflow Trainer 2.2.1, found 2.1.0" in text
    server.deployments = server.deployments[:1]
    assert server.check.run(JOB, 3 * POLL_SECONDS).status.result == "Reached"


def test_a_user_without_the_right_to_list_deployments_is_told_that_no_versions_are_compared() -> None:
    server = Server()
    server.errors["GET"] = FORBIDDEN
    failure(server)
    assert server.shown[0] == VERSIONS_NOT_SEEN
