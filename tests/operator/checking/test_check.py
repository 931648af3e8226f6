"""How a check ends; tests/cluster/chart/test_check.py has a real server, operator and pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from wattloop.errors import OperationError
from wattloop_operator.checking.check import LOOK_SECONDS, NO_REPORT, NOBODY, Check
from wattloop_operator.checking.tiny_job import tiny_job
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.transport import AnswerError, Request

JOB = tiny_job("team-a", "check", "wattloop/operator:0.1.0")
RECURRENCE = Path(__file__).parents[2] / "manifests" / "accepted" / "training-recurrence.yaml"
FORBIDDEN = (403, "Forbidden", "ann may not")


class Server:
    """An API server that keeps one job and never starts it; `dry_run` are answers by method."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = None
        self.dry_run: dict[str, tuple[int, str, str]] = {}
        self.told: list[str] = []
        self.recurrences: list[dict[str, Any]] = []
        self.now = 0.0
        self.check = Check(ClusterApi(self), self.told.append, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.method in self.dry_run:
            raise AnswerError(request, *self.dry_run[request.method])
        if request.method == "POST":
            assert request.body is not None
            self.job = {**request.body, "metadata": {**request.body["metadata"], "uid": "1"}}
        elif request.path.endswith("trainingrecurrences"):
            return {"metadata": {"resourceVersion": "1"}, "items": self.recurrences}
        elif self.job is None:
            raise AnswerError(request, 404, "NotFound", "not found")
        job = dict(self.job or {})
        if request.method == "DELETE":
            self.job = None
        return job


def ended(server: Server) -> str:
    with pytest.raises(OperationError) as caught:
        server.check.carry_out(JOB, 3 * LOOK_SECONDS)
    return str(caught.value)


def test_a_job_that_nobody_takes_up_ends_the_check_in_time_and_is_deleted() -> None:
    server = Server()
    assert ended(server).endswith(f"{NOBODY}; is the operator running, and does it hold its Lease?")
    assert server.job is None
    assert server.told[-1] == "deleted the RecurringTrainingJob team-a/check"


def test_a_training_that_runs_and_is_never_heard_is_told_with_where_to_look() -> None:
    server = Server()
    running = {"type": "Running", "status": "True", "reason": "Running", "lastTransitionTime": "2026-03-02T03:00:00Z"}
    written = yaml.safe_load(RECURRENCE.read_text(encoding="utf-8"))
    server.recurrences = [written | {"status": {"conditions": [running]}}]
    assert ended(server).endswith(f"{written['metadata']['name']}: started; {NO_REPORT}")


@pytest.mark.parametrize(("method", "said"), [("POST", "was refused"), ("GET", "cannot be followed")])
def test_a_right_that_is_missing_ends_the_check_with_the_servers_words(method: str, said: str) -> None:
    server = Server()
    server.dry_run[method] = FORBIDDEN
    text = ended(server)
    assert said in text
    assert "ann may not" in text
    assert server.job is None


def test_an_api_server_that_is_away_for_a_moment_ends_no_check() -> None:
    server = Server()
    server.dry_run["GET"] = (503, "ServiceUnavailable", "starting")

    def come_back(seconds: float) -> None:
        server.dry_run.clear()
        server.sleep(seconds)

    check = Check(ClusterApi(server), server.told.append, clock=lambda: server.now, sleep=come_back)
    with pytest.raises(OperationError, match=NOBODY):
        check.carry_out(JOB, 3 * LOOK_SECONDS)
    assert any("503" in line for line in server.told)


def test_a_job_that_was_deleted_meanwhile_ends_the_check() -> None:
    server = Server()
    server.dry_run["GET"] = (404, "NotFound", "not found")
    assert "somebody has deleted the RecurringTrainingJob team-a/check" in ended(server)


def test_a_job_that_cannot_be_deleted_is_named_and_hides_no_finding() -> None:
    server = Server()
    server.dry_run["DELETE"] = FORBIDDEN
    assert NOBODY in ended(server)
    assert server.told[-1].startswith("delete the RecurringTrainingJob team-a/check by hand: ")
