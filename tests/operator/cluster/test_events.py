"""Events of actions."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import RecentRecurrence, RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import Usage
from wattloop_operator.cluster.events import event_body, events_of
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    Action,
    CreateRecurrence,
    DeleteRecurrence,
    EmitEvent,
    StartWorkload,
    WriteJobStatus,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.learning.decision import Attempt, decide

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
JOB = RecurringTrainingJob.from_wire(
    {
        "metadata": {"name": "digits", "namespace": "team", "uid": "u"},
        "spec": {
            "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
            "batchSize": {"default": 64, "candidates": [64]},
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
        },
    }
)
RECURRENCE = decide(Snapshot(JOB), Attempt(3, 0, "1", NOW))
STARTED = Snapshot(JOB, (RECURRENCE,))
NAME = RECURRENCE.metadata.name
ACTIVE = WriteJobStatus(RecurringTrainingJobStatus(active=(NAME,)))
ENDED_BY_THEN = WriteJobStatus(
    RecurringTrainingJobStatus(recent_recurrences=(RecentRecurrence(name=NAME, index=3, batch_size=64),))
)
STATED = replace(STARTED, job=JOB.model_copy(update={"status": ACTIVE.status}))


def ended(result: Result) -> WriteRecurrenceStatus:
    status = RECURRENCE.status.model_copy(update={"result": result, "message": "the message"})
    return WriteRecurrenceStatus(RECURRENCE, status)


def with_late_usage() -> WriteRecurrenceStatus:
    """A usage that agents reported after the end; the end has its Event already."""
    status = ended(Result.REACHED).status
    usage = Usage.model_validate({"gpu_energy_joules": 1200, "duration_seconds": 12})
    known = RECURRENCE.model_copy(update={"status": status})
    return WriteRecurrenceStatus(known, status.model_copy(update={"usage": usage}))


def ready(reason: str) -> WriteJobStatus:
    condition = Condition(
        type="Ready", status=ConditionStatus.FALSE, reason=reason, message="why", last_transition_time=NOW
    )
    return WriteJobStatus(RecurringTrainingJobStatus(conditions=(condition,)))


@pytest.mark.parametrize(
    ("action", "events"),
    [
        (CreateRecurrence(RECURRENCE), []),
        (StartWorkload(RECURRENCE), []),
        (DeleteRecurrence(RECURRENCE), [("RecurrenceDeleted", False)]),
        (WriteRecurrenceStatus(RECURRENCE, RECURRENCE.status), []),
        (ended(Result.REACHED), [("RecurrenceReached", False)]),
        (with_late_usage(), []),
        (ended(Result.STOPPED), [("RecurrenceStopped", False)]),
        (ended(Result.CRASHED), [("RecurrenceCrashed", True)]),
        (ended(Result.MISSING_METRIC), [("RecurrenceMissingMetric", True)]),
        (ready("Suspended"), []),
        (ready("TemplateRejected"), [("TemplateRejected", True)]),
        (EmitEvent(True, "MissedStarts", "three"), [("MissedStarts", True)]),
    ],
)
def test_starts_ends_and_problems_are_events(action: Action, events: list[tuple[str, bool]]) -> None:
    assert [(each.reason, each.warning) for each in events_of(STATED, action)] == events


@pytest.mark.parametrize("action", [ACTIVE, ENDED_BY_THEN])
def test_a_start_is_an_event_of_the_status_or_of_the_end_before_it_once(action: Action) -> None:
    (with_status,) = events_of(STARTED, action)
    started, crashed = events_of(STARTED, ended(Result.CRASHED))
    assert (started, crashed.reason) == (with_status, "RecurrenceCrashed"), "an equal Event is created once"
    assert started.reason == "RecurrenceStarted"


@pytest.mark.parametrize("action", [ready("TemplateRejected"), ACTIVE])
def test_a_lasting_problem_and_an_active_recurrence_are_one_event(action: WriteJobStatus) -> None:
    known = replace(STARTED, job=JOB.model_copy(update={"status": action.status}))
    assert list(events_of(known, action)) == []


def test_an_attempt_that_is_recent_again_because_a_newer_one_was_deleted_does_not_start() -> None:
    counted = ACTIVE.status.totals.model_copy(update={"recurrences": RECURRENCE.spec.index + 1})
    status = RecurringTrainingJobStatus(totals=counted)
    known = replace(STARTED, job=JOB.model_copy(update={"status": status}))
    assert list(events_of(known, ENDED_BY_THEN)) == []
    assert [each.reason for each in events_of(known, ACTIVE)] == ["RecurrenceStarted"], "a retry has the same index"


@pytest.mark.parametrize(
    ("snapshot", "action"), [(STARTED, ACTIVE), (STATED, ended(Result.REACHED)), (STATED, ended(Result.CRASHED))]
)
def test_starts_and_ends_are_events_of_the_recurrence_too(snapshot: Snapshot, action: Action) -> None:
    (event,) = events_of(snapshot, action)
    assert event.recurrence == RECURRENCE
    about = event_body(RECURRENCE, event, "operator", NOW)
    assert about["regarding"]["kind"] == "TrainingRecurrence"
    assert about["regarding"]["name"] == RECURRENCE.metadata.name
    assert about["metadata"]["name"] != event_body(JOB, event, "operator", NOW)["metadata"]["name"]


def test_a_repeated_event_has_the_same_name_and_another_event_has_not() -> None:
    first, repeated, other = (
        event_body(JOB, EmitEvent(False, reason, "text"), "operator", NOW)["metadata"]["name"]
        for reason in ("A", "A", "B")
    )
    assert first == repeated != other
    assert len(event_body(JOB, EmitEvent(False, "A", "x" * 5000), "operator", NOW)["note"]) == 1024


def test_energies_that_disagree_are_a_warning() -> None:
    disagrees = Condition(
        type="EnergyAgrees",
        status=ConditionStatus.FALSE,
        reason="SourcesDisagree",
        message="GPU GPU-0: …",
        last_transition_time=NOW,
    )
    status = ended(Result.REACHED).status.model_copy(update={"conditions": (disagrees,)})
    events = list(events_of(STATED, WriteRecurrenceStatus(RECURRENCE, status)))
    assert [(each.reason, each.warning) for each in events] == [("RecurrenceReached", False), ("SourcesDisagree", True)]
    assert events[1].message.endswith("GPU GPU-0: …")


def test_a_refused_power_limit_is_one_warning_while_the_attempt_runs() -> None:
    refused = Condition(
        type="PowerLimitHeld",
        status=ConditionStatus.FALSE,
        reason="Refused",
        message="GPU GPU-0: …",
        last_transition_time=NOW,
    )
    status = RECURRENCE.status.model_copy(update={"conditions": (refused,)})
    events = list(events_of(Snapshot(JOB), WriteRecurrenceStatus(RECURRENCE, status)))
    assert [(each.reason, each.warning) for each in events] == [("PowerLimitRefused", True)]
    known = RECURRENCE.model_copy(update={"status": status})
    assert list(events_of(Snapshot(JOB), WriteRecurrenceStatus(known, status))) == []


@pytest.mark.parametrize("message", ["a" * 1_000_000, "η" * 1_000_000, "x" + "🔋" * 5_000])
def test_a_note_has_at_most_the_bytes_that_the_api_server_accepts(message: str) -> None:
    note = event_body(JOB, EmitEvent(True, "Reason", message), "operator", NOW)["note"]
    assert 1020 < len(note.encode()) <= 1024
    assert message.startswith(note)
