"""The dry run of a job's workload: once a generation, again where it was refused a while ago."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import RejectedError
from wattloop_operator.cluster.dry_run import RECHECK_SECONDS, DryRun
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.decision import Attempt, decide


def job(generation: int = 1, **status: Any) -> RecurringTrainingJob:
    return RecurringTrainingJob.from_wire(
        {
            "metadata": {"name": "digits", "namespace": "team", "uid": "u", "generation": generation},
            "spec": {
                "trigger": {"manual": {}},
                "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
                "batchSize": {"default": 64, "candidates": [64]},
                "template": {"job": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
            },
            "status": status,
        }
    )


def ready(reason: str, generation: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": reason, "lastTransitionTime": "2026-03-01T10:00:00Z"}
    return {"observedGeneration": generation, "conditions": [condition]}


class Server:
    """Refuses as long as it is told to, and counts how often it was asked."""

    def __init__(self) -> None:
        self.refuses = ""
        self.asked = 0
        self.now = 0.0

    def try_out(self, _job: RecurringTrainingJob, _recurrence: TrainingRecurrence) -> None:
        self.asked += 1
        if self.refuses:
            raise RejectedError(self.refuses)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def of(server: Server) -> Callable[[RecurringTrainingJob], str]:
    dry_run = DryRun(server.try_out, lambda: server.now)

    def sample(of_job: RecurringTrainingJob) -> TrainingRecurrence:
        return decide(Snapshot(of_job), Attempt(0, 0, "dry-run", datetime(2026, 3, 1, tzinfo=UTC)))

    return lambda of_job: dry_run.of(of_job, lambda: sample(of_job))


def test_what_was_accepted_is_asked_once_a_generation(server: Server, of: Callable[..., str]) -> None:
    assert [of(job()) for _ in range(3)] == ["", "", ""]
    assert server.asked == 1
    assert of(job(generation=2)) == ""
    assert server.asked == 2


def test_a_refusal_stands_until_the_job_changes_or_some_time_has_passed(server: Server, of: Callable[..., str]) -> None:
    server.refuses = "no such thing"
    assert [of(job()), of(job())] == ["no such thing", "no such thing"]
    assert server.asked == 1
    server.refuses = ""
    server.now = RECHECK_SECONDS
    assert of(job()) == ""
    assert server.asked == 2


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (ready("Scheduled"), 0),
        (ready("Suspended"), 0),
        (ready("TemplateRejected"), 1),
        (ready("Scheduled", generation=0), 1),
        ({}, 1),
    ],
)
def test_what_an_operator_before_found_acceptable_is_not_asked_again(
    status: dict[str, Any], asked: int, server: Server, of: Callable[..., str]
) -> None:
    assert of(job(**status)) == ""
    assert server.asked == asked
