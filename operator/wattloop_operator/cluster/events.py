"""Kubernetes Events of a job and its recurrences: each start, each end, and why nothing starts or has no plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.api.meta import ConditionStatus, ObjectMeta
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    RECURRENCE_DELETED,
    Action,
    DeleteRecurrence,
    EmitEvent,
    WriteJobStatus,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.attempt.attempt_conditions import (
    DEVICES_HEALTHY,
    ENERGY_AGREES,
    POWER_LIMIT_HELD,
    PUBLISHED,
    RANKS_HEALTHY,
)

CONTROLLER = "wattloop.dev/operator"
# The API server counts bytes.
MAX_NOTE_BYTES = 1024
WARNING_RESULTS = frozenset(
    {
        Result.CRASHED,
        *SCRIPT_FAILURES,
        Result.HUNG,
        Result.DEADLINE_EXCEEDED,
        Result.MISSING_METRIC,
        Result.DISRUPTED,
        Result.NAME_CONFLICT,
    }
)
# Conditions of a recurrence whose status False is a warning, and the reason of its Event.
WARNING_CONDITIONS = {
    ENERGY_AGREES: "SourcesDisagree",
    POWER_LIMIT_HELD: "PowerLimitRefused",
    DEVICES_HEALTHY: "DeviceUnhealthy",
    PUBLISHED: "ModelNotPublished",
    RANKS_HEALTHY: "RankDied",
}
# Reasons of a job's condition whose status False is a warning.
JOB_WARNING_REASONS = frozenset(
    {
        "TemplateRejected",
        "InvalidPattern",
        "InvalidParameters",
        "InvalidSchedule",
        "NotSupported",
        "HistoryUnknown",
        "FrequencyPlanNotFound",
        "NoFrequencyPlan",
    }
)


def events_of(snapshot: Snapshot, action: Action) -> Iterator[EmitEvent]:
    """The Events of an action that was carried out."""
    match action:
        case EmitEvent():
            yield action
        case WriteRecurrenceStatus(recurrence, status):
            subject = f"recurrence {recurrence.spec.index} ({recurrence.metadata.name})"
            if status.result is not None and recurrence.status.result is None:
                if recurrence.metadata.name not in _stated(snapshot.job.status):
                    # The status waits, or its write failed. When it repeats this Event, the API server has it already.
                    yield _started_event(recurrence)
                warning = status.result in WARNING_RESULTS
                yield EmitEvent(warning, f"Recurrence{status.result.value}", f"{subject}: {status.message}", recurrence)
            known = {(each.type, each.message) for each in recurrence.status.conditions}
            known_publication = any(kind == PUBLISHED for kind, _ in known)
            for condition in status.conditions:
                is_warning = condition.type in WARNING_CONDITIONS and condition.status is ConditionStatus.FALSE
                text = f"{subject}: {condition.message}"
                if is_warning and (condition.type, condition.message) not in known:
                    yield EmitEvent(True, WARNING_CONDITIONS[condition.type], text, recurrence)
                if condition.type == PUBLISHED and condition.status is ConditionStatus.TRUE and not known_publication:
                    yield EmitEvent(False, "ModelPublished", text, recurrence)
        case DeleteRecurrence(recurrence):
            limit = (
                "successfulRunsHistoryLimit" if recurrence.status.result is Result.REACHED else "failedRunsHistoryLimit"
            )
            text = (
                f"recurrence {recurrence.spec.index} ({recurrence.metadata.name}) was deleted by spec.{limit}; what "
                "was learned from it is kept"
            )
            yield EmitEvent(False, RECURRENCE_DELETED, text)
        case WriteJobStatus(status):
            yield from _started_events(snapshot, status)
            before = {each.reason for each in snapshot.job.status.conditions}
            for condition in status.conditions:
                is_warning = condition.reason in JOB_WARNING_REASONS and condition.status is ConditionStatus.FALSE
                if is_warning and condition.reason not in before:
                    yield EmitEvent(True, condition.reason, condition.message)


def _started_events(snapshot: Snapshot, status: RecurringTrainingJobStatus) -> Iterator[EmitEvent]:
    """The Events of the attempts that a job's status states for the first time, active or ended by then.

    They come with the status, so no start waits for them, and an operator that takes over emits those that lack. An
    older attempt is among the recent ones again when a user deletes a newer one. Its recurrence was counted before.
    """
    before = snapshot.job.status
    new, active = _stated(status) - _stated(before), set(status.active)
    for recurrence in snapshot.recurrences:
        name = recurrence.metadata.name
        if name in new and (name in active or recurrence.spec.index >= before.totals.recurrences):
            yield _started_event(recurrence)


def _started_event(recurrence: TrainingRecurrence) -> EmitEvent:
    name, spec = recurrence.metadata.name, recurrence.spec
    text = (
        f"recurrence {spec.index}, attempt {spec.attempt} ({name}) starts with batch size {spec.batch_size}: "
        f"{spec.decision.reason}"
    )
    return EmitEvent(False, "RecurrenceStarted", text, recurrence)


def _stated(status: RecurringTrainingJobStatus) -> set[str]:
    return set(status.active) | {each.name for each in status.recent_recurrences}


@dataclass(frozen=True)
class EventSubject:
    """An object of which only the identity is known."""

    api_version: str
    kind: str
    metadata: ObjectMeta


def event_body(
    about: RecurringTrainingJob | TrainingRecurrence | EventSubject, event: EmitEvent, reporter: str, now: datetime
) -> dict[str, Any]:
    """The Kubernetes Event. Its name is a digest of its content, so that a repeated Event exists once.

    Args:
        about: The job or the recurrence that it is about.
        event: Its type, reason and message.
        reporter: Name of this operator's process.
        now: The time.
    """
    content = f"{about.metadata.uid}/{event.reason}/{event.message}"
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{about.metadata.name}.{digest}", "namespace": about.metadata.namespace},
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": reporter[:128],
        "action": "Reconcile",
        "reason": event.reason,
        "type": "Warning" if event.warning else "Normal",
        "regarding": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.metadata.namespace,
            "name": about.metadata.name,
            "uid": about.metadata.uid,
        },
        "note": event.message.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
    }
