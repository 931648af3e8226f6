"""A job and its recurrence for the tests of workloads."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.decision import Attempt, decide

MakeJob = Callable[..., RecurringTrainingJob]


@pytest.fixture
def make_job() -> MakeJob:
    """Makes a job of a template (or of containers) and fields of its spec."""

    def make(*containers: dict[str, Any], template: dict[str, Any] | None = None, **spec: Any) -> RecurringTrainingJob:
        job = {"template": {"spec": {"containers": list(containers) or [{"name": "train", "image": "train:1"}]}}}
        return RecurringTrainingJob.from_wire(
            {
                "apiVersion": "wattloop.dev/v1alpha1",
                "kind": "RecurringTrainingJob",
                "metadata": {"name": "digits", "namespace": "team", "uid": "job-uid", "generation": 1},
                "spec": {
                    "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 7},
                    "batchSize": {"default": 64, "candidates": [32, 64]},
                    "template": template or {"spec": job},
                    **spec,
                },
            }
        )

    return make


@pytest.fixture
def recurrence_of() -> Callable[[RecurringTrainingJob], TrainingRecurrence]:
    """Decides the first attempt of a job."""

    def recurrence(job: RecurringTrainingJob) -> TrainingRecurrence:
        attempt = Attempt(0, 0, "1772323200", datetime(2026, 3, 1, tzinfo=UTC))
        decided = decide(Snapshot(job), attempt)
        metadata = decided.metadata.model_copy(update={"uid": "recurrence-uid"})
        return decided.model_copy(update={"metadata": metadata})

    return recurrence
