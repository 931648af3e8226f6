"""Dry runs of a job's workload: once per generation, and again some time after a refusal."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.start_checks import RECHECK_SECONDS, DryRun
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.workloads.injection import ClusterAddresses


def job(generation: int = 1, **status: Any) -> RecurringTrainingJob:
    return RecurringTrainingJob.from_wire(
        {
            "metadata": {"name": "digits", "namespace": "team", "uid": "u", "generation": generation},
            "spec": {
                "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
                "batchSize": {"default": 64, "candidates": [64]},
                "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
            },
            "status": status,
        }
    )


def ready(reason: str, generation: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": reason, "lastTransitionTime": "2026-03-01T10:00:00Z"}
    return {"observedGeneration": generation, "conditions": [condition]}


class Server:
    """Rejects workloads while `rejection` is set, and counts the dry runs."""

    def __init__(self) -> None:
        self.rejection = ""
        self.requests = 0
        self.now = 0.0

    def dry_run_create(self, _job: RecurringTrainingJob, _recurrence: TrainingRecurrence) -> None:
        self.requests += 1
        if self.rejection:
            raise RejectedError(self.rejection)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def refusal(server: Server) -> Callable[[RecurringTrainingJob], str]:
    dry_run = DryRun(server.dry_run_create, lambda: server.now)

    def sample(of_job: RecurringTrainingJob) -> TrainingRecurrence:
        return decide(Snapshot(of_job), Attempt(0, 0, "dry-run", datetime(2026, 3, 1, tzinfo=UTC)))

    return lambda of_job: dry_run.refusal(of_job, lambda: sample(of_job))


def test_an_accepted_workload_is_checked_once_per_generation(server: Server, refusal: Callable[..., str]) -> None:
    assert [refusal(job()) for _ in range(3)] == ["", "", ""]
    assert server.requests == 1
    assert refusal(job(generation=2)) == ""
    assert server.requests == 2


def test_a_refusal_is_repeated_until_the_recheck(server: Server, refusal: Callable[..., str]) -> None:
    server.rejection = "no such thing"
    assert [refusal(job()), refusal(job())] == ["no such thing", "no such thing"]
    assert server.requests == 1
    server.rejection = ""
    server.now = RECHECK_SECONDS
    assert refusal(job()) == ""
    assert server.requests == 2


@pytest.mark.parametrize(
    ("status", "requests"),
    [
        (ready("Scheduled"), 0),
        (ready("Suspended"), 0),
        (ready("TemplateRejected"), 1),
        (ready("Scheduled", generation=0), 1),
        ({}, 1),
    ],
)
def test_a_workload_that_a_previous_operator_accepted_is_not_checked_again(
    status: dict[str, Any], requests: int, server: Server, refusal: Callable[..., str]
) -> None:
    assert refusal(job(**status)) == ""
    assert server.requests == requests


def test_a_field_that_wattloop_adds_for_another_version_of_a_kind_may_be_dropped() -> None:
    """A TrainJob gets the patches of two versions of Trainer, of which each drops one."""
    queries: list[str | None] = []

    def transport(request: Request) -> dict[str, Any]:
        queries.append(request.query.get("fieldValidation"))
        if queries[-1] == "Strict":
            message = 'strict decoding error: unknown field "spec.podTemplateOverrides"'
            raise StatusError(request, 400, "BadRequest", message)
        return {"kind": "Job", "spec": {}}

    made = job()
    access = WorkloadAccess(ClusterApi(transport), ObjectCache(), lambda: ClusterAddresses(report_url="x"), lambda: 0.0)
    access.dry_run_create(made, decide(Snapshot(made), Attempt(0, 0, "dry-run", datetime(2026, 3, 1, tzinfo=UTC))))
    assert queries == ["Strict", None]
