"""What a job says of the frequency plan of its pipeline: its status, its condition, and Events."""

from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with
from wattloop_operator.api.power_fields import AppliedFrequencyPlan
from wattloop_operator.cluster.events import events_of
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.reconcile.actions import WriteJobStatus
from wattloop_operator.reconcile.next_actions import next_actions

PLANNED = {"power": {"mode": "None"}}
NAMED = {"power": {"mode": "None", "frequencyPlan": {"name": "mine"}}}
RUNNING = AppliedFrequencyPlan(
    name="digits-1",
    mode="Plan",
    saving_percent=Decimal("6.1"),
    slowdown_percent=Decimal(0),
    saving_error_percent=Decimal("0.2"),
    reason="iterations of 1.5 s by the plan",
)


def apply(backend: ModelBackend, applied: AppliedFrequencyPlan) -> None:
    """Write what the writer of FrequencyPlans writes of the running attempt, and reconcile."""
    name = backend.running[0]
    recurrence = backend.recurrences[name]
    status = recurrence.status.model_copy(update={"frequency_plan": applied})
    backend.recurrences[name] = recurrence.model_copy(update={"status": status})
    backend.reconcile()


def condition(backend: ModelBackend) -> tuple[str, str, str] | None:
    found = [each for each in backend.job.status.conditions if each.type == "PlanAvailable"]
    return (found[0].status.value, found[0].reason, found[0].message) if found else None


def test_a_job_shows_the_plan_of_its_newest_attempt_and_keeps_it() -> None:
    backend = backend_with(**PLANNED)
    backend.reconcile()
    assert condition(backend) is None
    name = backend.running[0]
    apply(backend, RUNNING)
    text = f"recurrence {name}: FrequencyPlan digits-1, which saves 6.1 % of the energy"
    assert condition(backend) == ("True", "Planned", text)
    # The next attempt has not registered yet.
    backend.run_workload(name)
    backend.finish(name, epoch=5, metric=0.95)
    backend.advance(3600)
    assert backend.running != [name]
    assert condition(backend) == ("True", "Planned", text)
    del backend.recurrences[name]
    backend.reconcile()
    assert condition(backend) == ("True", "Planned", text)


def test_the_record_of_an_ended_attempt_has_its_plan() -> None:
    backend = backend_with(**PLANNED)
    backend.reconcile()
    name = backend.running[0]
    apply(backend, RUNNING)
    backend.run_workload(name)
    backend.finish(name, epoch=5, metric=0.95)
    expected = PipelineResult("Plan", "digits-1", saving_percent=6.1, slowdown_percent=0.0, saving_error_percent=0.2)
    assert backend.records[0, 0].pipeline == expected


NOT_FOUND = (
    "the job names FrequencyPlan mine, which does not exist in namespace team, so its ranks run at free clocks; "
    "create it, and running ranks get its clocks, or leave power.frequencyPlan.name out"
)


@pytest.mark.parametrize(
    ("power", "applied", "expected"),
    [
        (NAMED, {"name": "", "mode": "Free", "problem": "missing"}, ("False", "FrequencyPlanNotFound", NOT_FOUND)),
        (NAMED, {"name": "mine", "mode": "Free", "problem": "for V100"}, ("False", "NoFrequencyPlan", "for V100")),
        (PLANNED, {"mode": "Free", "problem": "no power"}, ("False", "NoFrequencyPlan", "free clocks: no power")),
        (PLANNED, {"mode": "Profile", "reason": "they measure"}, ("Unknown", "NotProfiled", "they measure")),
        (NAMED, {"name": "mine", "mode": "Plan"}, ("True", "Planned", "FrequencyPlan mine")),
        (PLANNED, {"mode": "Plan"}, ("True", "Planned", "a plan from its profile")),
    ],
)
def test_the_condition_says_whether_there_is_a_plan_and_an_event_that_there_is_none(
    power: dict[str, Any], applied: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    backend = backend_with(**power)
    backend.reconcile()
    before = backend.state
    apply(backend, AppliedFrequencyPlan(**applied))
    found = condition(backend)
    assert found[:2] == expected[:2]
    assert found[2].startswith("recurrence ")
    assert found[2].endswith(expected[2])
    events = list(events_of(before, WriteJobStatus(backend.job.status)))
    assert [each.reason for each in events if each.warning] == ([expected[1]] if expected[0] == "False" else [])
    # The same problem is one Event.
    assert list(events_of(backend.state, WriteJobStatus(backend.job.status))) == []
    assert next_actions(backend.state, backend.now).actions == ()


def test_a_job_that_plans_no_pipeline_has_no_such_condition() -> None:
    backend = backend_with()
    backend.reconcile()
    apply(backend, AppliedFrequencyPlan(mode="Free", reason="the job sets no clocks"))
    assert condition(backend) is None
