"""What earlier attempts still say after their job has changed, from the objects and from the store alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_planner.bandit.policy import NoFeasibleArmError

CORRECTED = {"job": {"template": {"spec": {"containers": [{"name": "train", "image": "digits:corrected"}]}}}}
TWO_SIZES: dict[str, Any] = {"batchSize": {"default": 64, "candidates": [32, 64]}}


def decision_or_error(backend: ModelBackend) -> TrainingRecurrence | str:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    try:
        return decide(snapshot, Attempt(99, 0, "next", backend.now))
    except NoFeasibleArmError as error:
        return str(error)


def same_decision_from_either_memory(backend: ModelBackend) -> TrainingRecurrence | str:
    """The next decision, which must not change if the store or the objects are lost."""
    records, recurrences = dict(backend.records), dict(backend.recurrences)
    decided = decision_or_error(backend)
    backend.records = {}
    assert decision_or_error(backend) == decided
    backend.records, backend.recurrences = records, {}
    assert decision_or_error(backend) == decided
    backend.recurrences = recurrences
    return decided


def crash_until_blocked(backend: ModelBackend) -> None:
    backend.reconcile()
    while backend.running:
        name = backend.running[0]
        backend.run_workload(name)
        backend.end_workload(name, Failure.CRASHED, "exit code 1")
        backend.reconcile()
        backend.advance(3600)
        backend.reconcile()


def ready_reason(backend: ModelBackend) -> tuple[ConditionStatus, str, str]:
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    return ready.status, ready.reason, ready.message


@pytest.mark.parametrize("policy", [{"thompsonSampling": {}}, {"zeus": {}}, {"fixed": {}}])
def test_a_corrected_template_frees_a_job_whose_batch_sizes_all_crashed(
    backend_with: Callable[..., ModelBackend], policy: dict[str, Any]
) -> None:
    backend = backend_with(**TWO_SIZES, policy=policy, successfulHistoryLimit=1000, failedHistoryLimit=1000)
    crash_until_blocked(backend)
    status, reason, message = ready_reason(backend)
    assert (status, reason) == (ConditionStatus.FALSE, "NoArmLeft")
    assert message.endswith("Crashes count until spec.template changes")
    assert isinstance(same_decision_from_either_memory(backend), str)
    crashed = len(backend.records)

    backend.change_spec(template=CORRECTED)
    decided = same_decision_from_either_memory(backend)
    assert isinstance(decided, TrainingRecurrence)
    assert decided.spec.template_digest == backend.job.spec.template.digest
    backend.advance(3600)
    backend.reconcile()
    assert ready_reason(backend)[:2] == (ConditionStatus.TRUE, "Scheduled")
    assert len(backend.running) == 1

    # The corrected template has a crash budget of its own.
    crash_until_blocked(backend)
    assert ready_reason(backend)[1] == "NoArmLeft"
    assert len(backend.records) == 2 * crashed


def test_the_original_template_gets_its_crashes_back(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(**TWO_SIZES)
    original = backend.job.to_wire()["spec"]["template"]
    crash_until_blocked(backend)
    blocked = decision_or_error(backend)
    backend.change_spec(template=CORRECTED)
    backend.change_spec(template=original)
    assert decision_or_error(backend) == blocked


def test_a_change_elsewhere_in_the_spec_keeps_the_crashes(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(**TWO_SIZES)
    crash_until_blocked(backend)
    backend.change_spec(failedHistoryLimit=7, objective={**backend.job.to_wire()["spec"]["objective"], "maxEpochs": 9})
    assert isinstance(decision_or_error(backend), str)


def test_a_crash_with_an_unknown_template_counts_unless_its_object_knows_it(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(**TWO_SIZES, failedHistoryLimit=1000)
    crash_until_blocked(backend)
    backend.records = {key: replace(record, template_digest=None) for key, record in backend.records.items()}
    backend.change_spec(template=CORRECTED)
    assert isinstance(decision_or_error(backend), TrainingRecurrence)
    backend.recurrences.clear()
    assert isinstance(decision_or_error(backend), str)
