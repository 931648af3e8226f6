"""A power limit that the agent refuses fails no training: a condition says why, and the attempt counts for no limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, job, report
from wattloop_operator.api.attempt import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.reconcile.attempt.conditions import POWER_LIMIT_HELD
from wattloop_operator.reconcile.attempt.progress import progress_after
from wattloop_operator.reconcile.learning import observations

Reconcile = Callable[[ModelBackend], None]
REFUSAL = (
    "the agent refused: GPU GPU-0: a power limit of 100 watts is out of range: GPUPowerPolicy fleet allows 150 to 350"
)
FIXED = {"limit": {"mode": "Fixed", "watts": 100}}


def running(settled: Reconcile, power: dict[str, Any]) -> tuple[ModelBackend, str]:
    backend = ModelBackend(job(power=power, policy={"fixed": {}}))
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    settled(backend)
    return backend, name


def hear(backend: ModelBackend, name: str, *, refusal: str = "", held: float | None = None, **fields: Any) -> None:
    """A report that says what became of the limit."""
    recurrence = backend.recurrences[name]
    heard = replace(report(**fields), power_limit_watts=held, power_limit_refusal=refusal)
    status = recurrence.status.model_copy(update={"progress": progress_after(recurrence, heard)})
    backend.recurrences[name] = recurrence.model_copy(update={"status": status})


def limit_condition(backend: ModelBackend, name: str) -> Condition | None:
    conditions = backend.recurrences[name].status.conditions
    return next((each for each in conditions if each.type == POWER_LIMIT_HELD), None)


@pytest.mark.parametrize(
    "power", [FIXED, {"limit": {"mode": "Auto", "selector": "Cost"}}], ids=["fixed", "to be measured"]
)
def test_a_refused_limit_is_a_condition_and_the_training_goes_on_to_its_target(
    power: dict[str, Any], settled: Reconcile
) -> None:
    backend, name = running(settled, power)
    hear(backend, name, refusal=REFUSAL)
    settled(backend)
    told = limit_condition(backend, name)
    assert told is not None
    assert (told.status, told.reason) == (ConditionStatus.FALSE, "Refused")
    assert told.message.startswith(REFUSAL)
    hear(backend, name, refusal=REFUSAL, sequence=2, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    settled(backend)
    assert backend.recurrences[name].status.result is Result.REACHED
    assert limit_condition(backend, name) == told
    (record,) = backend.records.values()
    assert record.power_limit_watts is None, "what it cost counts for no limit"
    assert observations.observations((record,)) != ()


def test_a_limit_that_is_held_is_said_to_be(settled: Reconcile) -> None:
    backend, name = running(settled, FIXED)
    hear(backend, name, held=100.0)
    settled(backend)
    told = limit_condition(backend, name)
    assert told is not None
    assert (told.status, told.reason) == (ConditionStatus.TRUE, "Held")


def test_a_limit_that_is_held_after_all_turns_the_condition(settled: Reconcile) -> None:
    backend, name = running(settled, FIXED)
    hear(backend, name, refusal=REFUSAL)
    settled(backend)
    backend.pass_seconds(60)
    hear(backend, name, held=100.0, sequence=2)
    settled(backend)
    told = limit_condition(backend, name)
    assert told is not None
    assert (told.status, told.last_transition_time) == (ConditionStatus.TRUE, backend.now)


@pytest.mark.parametrize(
    ("power", "heard"),
    [
        ({"limit": {"mode": "None"}}, {"refusal": REFUSAL}),
        (FIXED, {}),
        (FIXED, {"refusal": REFUSAL, "gpus": 0}),
    ],
    ids=["no limit was decided", "nothing was said of it", "there are no GPUs to hold"],
)
def test_where_there_is_nothing_to_say_there_is_no_condition(
    power: dict[str, Any], heard: dict[str, Any], settled: Reconcile
) -> None:
    backend, name = running(settled, power)
    hear(backend, name, **heard)
    settled(backend)
    assert limit_condition(backend, name) is None
