"""What a user is told as Kubernetes Events: each start, each end, and why nothing starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    Action,
    CreateRecurrence,
    EmitEvent,
    WriteJobStatus,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.attempt.conditions import DEVICES_HEALTHY, ENERGY_AGREES, POWER_LIMIT_HELD

CONTROLLER = "wattloop.dev/operator"
MAX_NOTE_CHARACTERS = 1024
WORTH_ATTENTION = frozenset(
    {Result.CRASHED, Result.DEADLINE_EXCEEDED, Result.MISSING_METRIC, Result.DISRUPTED, Result.NAME_CONFLICT}
)
# Conditions of a recurrence, and the reason of the Event that says that one does not hold.
TOLD_WHERE_FALSE = {
    ENERGY_AGREES: "SourcesDisagree",
    POWER_LIMIT_HELD: "PowerLimitRefused",
    DEVICES_HEALTHY: "DeviceUnhealthy",
}
BLOCKED_BY_MISTAKE = frozenset({"TemplateRejected", "InvalidSchedule", "NotSupported"})


def events_of(snapshot: Snapshot, action: Action) -> Iterator[EmitEvent]:
    """What to tell the user of an action that was carried out."""
    match action:
        case EmitEvent():
            yield action
        case CreateRecurrence(recurrence):
            spec = recurrence.spec
            text = (
                f"recurrence {spec.index}, attempt {spec.attempt} ({recurrence.metadata.name}) starts with batch size "
                f"{spec.batch_size}: {spec.decision.reason}"
            )
            yield EmitEvent(False, "RecurrenceStarted", text)
        case WriteRecurrenceStatus(recurrence, status):
            whose = f"recurrence {recurrence.spec.index} ({recurrence.metadata.name})"
            if status.result is not None and recurrence.status.result is None:
                warning = status.result in WORTH_ATTENTION
                yield EmitEvent(warning, f"Recurrence{status.result.value}", f"{whose}: {status.message}")
            known = {(each.type, each.message) for each in recurrence.status.conditions}
            for condition in status.conditions:
                doubtful = condition.type in TOLD_WHERE_FALSE and condition.status is ConditionStatus.FALSE
                if doubtful and (condition.type, condition.message) not in known:
                    yield EmitEvent(True, TOLD_WHERE_FALSE[condition.type], f"{whose}: {condition.message}")
        case WriteJobStatus(status):
            before = {each.reason for each in snapshot.job.status.conditions}
            for condition in status.conditions:
                blocked = condition.reason in BLOCKED_BY_MISTAKE and condition.status is ConditionStatus.FALSE
                if blocked and condition.reason not in before:
                    yield EmitEvent(True, condition.reason, condition.message)


def event(job: RecurringTrainingJob, notice: EmitEvent, reporter: str, now: datetime) -> dict[str, Any]:
    """The Event of a notice; its name follows from what it says, so that said twice it is there once.

    Args:
        job: What it is about.
        notice: What is said.
        reporter: Name of this operator's process.
        now: The time.
    """
    said = f"{job.metadata.uid}/{notice.reason}/{notice.message}"
    digest = hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{job.metadata.name}.{digest}", "namespace": job.metadata.namespace},
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": reporter[:128],
        "action": "Reconcile",
        "reason": notice.reason,
        "type": "Warning" if notice.warning else "Normal",
        "regarding": {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
        },
        "note": notice.message[:MAX_NOTE_CHARACTERS],
    }
