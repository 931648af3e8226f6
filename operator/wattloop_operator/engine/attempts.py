"""One attempt from its decision to its outcome: start its workload, watch it, end it, write down what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.conditions import Condition
from wattloop_operator.api.progress import Progress
from wattloop_operator.api.quantities import to_decimal
from wattloop_operator.api.result import Result
from wattloop_operator.api.training_recurrence import (
    TrainingRecurrence,
    TrainingRecurrenceStatus,
    WorkloadReference,
)
from wattloop_operator.engine.actions import Action, EndWorkload, StartWorkload, WriteRecurrenceStatus
from wattloop_operator.engine.conditions import changed_at, condition
from wattloop_operator.engine.outcome import Ended, standing
from wattloop_operator.engine.savings import default_cost
from wattloop_operator.engine.snapshot import Snapshot, WorkloadPhase, WorkloadState
from wattloop_operator.engine.usage import cost_of, cost_status, usage_of

RUNNING = "Running"
ENDING = "Ending"
COMPLETE = "Complete"


@dataclass(frozen=True)
class AttemptTurn:
    """What one attempt asks for, and when time alone changes something about it."""

    actions: tuple[Action, ...]
    wake_at: datetime | None = None


def attempt_turn(snapshot: Snapshot, recurrence: TrainingRecurrence, now: datetime) -> AttemptTurn:
    """Take one attempt a step further."""
    workload = snapshot.workloads.get(recurrence.metadata.name)
    if recurrence.status.result is not None:
        # The outcome is written first, so that a kill in between can't have an ended workload started again.
        return AttemptTurn((EndWorkload(recurrence),) if workload is not None and workload.lingers else ())
    if workload is None and recurrence.status.workload_ref is None:
        # What was refused would only be refused again; the job's status says why it waits.
        return AttemptTurn(() if snapshot.refusal else (StartWorkload(recurrence),))
    spec = snapshot.job.spec
    stand = standing(
        recurrence,
        workload,
        deadline_seconds=spec.active_deadline_seconds,
        asked_to_end_at=changed_at(recurrence.status.conditions, ENDING),
        now=now,
    )
    if isinstance(stand, Ended):
        return AttemptTurn((_ended(snapshot, recurrence, stand, now),))
    status = _watched(recurrence, workload, now)
    if status == recurrence.status:
        return AttemptTurn((), stand.until)
    return AttemptTurn((WriteRecurrenceStatus(recurrence, status),), stand.until)


def cancelled(snapshot: Snapshot, recurrence: TrainingRecurrence, why: str, now: datetime) -> Action:
    """Give up an attempt that is to make room; its workload is ended in the next turn."""
    return _ended(snapshot, recurrence, Ended(Result.CANCELLED, why), now)


def _watched(recurrence: TrainingRecurrence, workload: WorkloadState | None, now: datetime) -> TrainingRecurrenceStatus:
    """The status of an attempt that goes on."""
    status = recurrence.status
    if workload is None:
        return status
    progress = status.progress or Progress()
    runs = workload.phase is WorkloadPhase.RUNNING
    conditions = [
        condition(
            status.conditions,
            RUNNING,
            holds=runs,
            reason="Running" if runs else "Waiting",
            message=workload.message,
            now=now,
        )
    ]
    if progress.stop_requested or progress.finished:
        reason = "StopRequested" if progress.stop_requested else "Finished"
        text = progress.stop_reason or "the training said that it is done"
        conditions.append(condition(status.conditions, ENDING, holds=True, reason=reason, message=text, now=now))
    return status.model_copy(
        update={
            "conditions": tuple(conditions),
            "workload_ref": status.workload_ref or _reference(workload),
            "start_time": status.start_time or workload.started_at,
        }
    )


def _reference(workload: WorkloadState) -> WorkloadReference:
    return WorkloadReference(api_version=workload.api_version, kind=workload.kind, name=workload.name, uid=workload.uid)


def _ended(snapshot: Snapshot, recurrence: TrainingRecurrence, ended: Ended, now: datetime) -> Action:
    spec = snapshot.job.spec
    workload = snapshot.workloads.get(recurrence.metadata.name)
    progress = recurrence.status.progress or Progress()
    usage = usage_of(progress)
    cost = cost_of(recurrence.spec, progress, usage)
    energy = 0.0 if usage is None else float(usage.gpu_energy_joules)
    return WriteRecurrenceStatus(
        recurrence,
        recurrence.status.model_copy(
            update={
                "conditions": _final_conditions(recurrence, ended, now),
                "workload_ref": recurrence.status.workload_ref
                or (None if workload is None or not workload.owned else _reference(workload)),
                "start_time": recurrence.status.start_time or (None if workload is None else workload.started_at),
                "completion_time": (None if workload is None else workload.ended_at) or now,
                "usage": usage,
                "cost": cost_status(cost, default_cost(snapshot), energy, spec.objective.price),
                "result": ended.result,
                "epochs": to_decimal(0) if progress.epoch is None else progress.epoch,
                "message": ended.message[:4096],
            }
        ),
    )


def _final_conditions(recurrence: TrainingRecurrence, ended: Ended, now: datetime) -> tuple[Condition, ...]:
    before = recurrence.status.conditions
    reason = ended.result.value
    return (
        condition(before, RUNNING, holds=False, reason=reason, message=ended.message, now=now),
        condition(before, COMPLETE, holds=True, reason=reason, message=ended.message, now=now),
    )
