"""A power limit that the agent refuses fails no training: a condition gives the reason."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, job, report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.reconcile.attempt.attempt_conditions import POWER_LIMIT_HELD
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning import job_observations

REFUSAL = (
    "the agent refused: GPU GPU-0: a power limit of 100 watts is out of range: GPUPowerPolicy fleet allows 150 to 350"
)
FIXED = {"mode": "Fixed", "watts": 100}


def running(power: dict[str, Any]) -> tuple[ModelBackend, str]:
    backend = ModelBackend(job(power=power, mode="Fixed"))
    return backend, backend.start_attempt()


def report_limit(
    backend: ModelBackend, name: str, *, refusal: str = "", limit: float | None = None, **fields: Any
) -> None:
    """A report with the state of the power limit arrives."""
    recurrence = backend.recurrences[name]
    limit_report = replace(report(**fields), power_limit_watts=limit, power_limit_refusal=refusal)
    backend.recurrences[name] = recurrence.model_copy(update={"progress": progress_after(recurrence, limit_report)})


def limit_condition(backend: ModelBackend, name: str) -> Condition | None:
    conditions = backend.recurrences[name].status.conditions
    return next((each for each in conditions if each.type == POWER_LIMIT_HELD), None)


@pytest.mark.parametrize("power", [FIXED, {"mode": "Auto", "selector": "Cost"}], ids=["fixed", "to be measured"])
def test_a_refused_limit_sets_a_condition_and_the_training_reaches_its_target(power: dict[str, Any]) -> None:
    backend, name = running(power)
    report_limit(backend, name, refusal=REFUSAL)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert condition is not None
    assert (condition.status, condition.reason) == (ConditionStatus.FALSE, "Refused")
    assert condition.message.startswith(REFUSAL)
    report_limit(backend, name, refusal=REFUSAL, sequence=2, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert backend.recurrences[name].status.result is Result.REACHED
    assert limit_condition(backend, name) == condition
    (record,) = backend.records.values()
    assert record.power_limit_watts is None, "its cost counts for no limit"
    assert job_observations.observations((record,)) != ()


def test_a_limit_that_is_set_has_a_true_condition() -> None:
    backend, name = running(FIXED)
    report_limit(backend, name, limit=100.0)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert condition is not None
    assert (condition.status, condition.reason) == (ConditionStatus.TRUE, "Held")


def test_a_limit_that_is_set_after_a_refusal_changes_the_condition() -> None:
    backend, name = running(FIXED)
    report_limit(backend, name, refusal=REFUSAL)
    backend.reconcile()
    backend.advance(60)
    report_limit(backend, name, limit=100.0, sequence=2)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert condition is not None
    assert (condition.status, condition.last_transition_time) == (ConditionStatus.TRUE, backend.now)


@pytest.mark.parametrize(
    ("power", "fields"),
    [
        ({"mode": "None"}, {"refusal": REFUSAL}),
        (FIXED, {}),
        (FIXED, {"refusal": REFUSAL, "gpus": 0}),
    ],
    ids=["no limit was chosen", "the report does not mention it", "there are no GPUs"],
)
def test_without_a_limit_or_gpus_there_is_no_condition(power: dict[str, Any], fields: dict[str, Any]) -> None:
    backend, name = running(power)
    report_limit(backend, name, **fields)
    backend.reconcile()
    assert limit_condition(backend, name) is None
