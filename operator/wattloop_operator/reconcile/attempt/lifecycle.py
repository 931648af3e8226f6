"""One attempt from its decision to its outcome: start its workload, watch it, end it, write down what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.attempt import Progress, Result
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.training_recurrence import (
    MAX_PODS,
    PodReference,
    TrainingRecurrence,
    TrainingRecurrenceStatus,
    WorkloadReference,
)
from wattloop_operator.domain.snapshot import Snapshot, WorkloadPhase, WorkloadState
from wattloop_operator.reconcile.actions import Action, EndWorkload, StartWorkload, WriteRecurrenceStatus
from wattloop_operator.reconcile.attempt.device_health import device_conditions
from wattloop_operator.reconcile.attempt.late_usage import with_late_usage
from wattloop_operator.reconcile.attempt.outcome import Ended, assess
from wattloop_operator.reconcile.conditions import changed_at, condition, none_ahead
from wattloop_operator.reconcile.energy.agent_energy import agent_energy_of, awaited_until, told_until
from wattloop_operator.reconcile.energy.energy_agreement import energy_conditions
from wattloop_operator.reconcile.energy.usage import cost_of, cost_status, usage_at_end
from wattloop_operator.reconcile.learning.savings import default_cost

RUNNING = "Running"
ENDING = "Ending"
COMPLETE = "Complete"
POWER_LIMIT_HELD = "PowerLimitHeld"
# A condition of its own beside Running's reason of this name: Running may be False since before the pods ran.
ENERGY_AWAITED = "EnergyAwaited"
ENERGY_AWAITED_MESSAGE = "its pods have ended; the node agents' last word on their energy is waited for"


@dataclass(frozen=True)
class AttemptActions:
    """What one attempt asks for, and when time alone changes something about it."""

    actions: tuple[Action, ...]
    wake_at: datetime | None = None


def attempt_actions(snapshot: Snapshot, recurrence: TrainingRecurrence, now: datetime) -> AttemptActions:
    """Take one attempt a step further."""
    workload = snapshot.workloads.get(recurrence.metadata.name)
    if recurrence.status.result is not None:
        # The outcome is written first, so that a kill in between can't have an ended workload started again.
        ends = (EndWorkload(recurrence),) if workload is not None and workload.lingers else ()
        return AttemptActions((*ends, *with_late_usage(snapshot, recurrence, now)))
    if workload is None and recurrence.status.workload_ref is None:
        # What was refused would only be refused again; the job's status says why it waits.
        return AttemptActions(() if snapshot.refusal else (StartWorkload(recurrence),))
    spec = snapshot.job.spec
    written, recurrence = recurrence.status, _none_ahead(recurrence, now)
    assessment = assess(
        recurrence,
        workload,
        deadline_seconds=spec.active_deadline_seconds,
        asked_to_end_at=changed_at(recurrence.status.conditions, ENDING),
        now=now,
    )
    until = _awaited(snapshot, recurrence, workload) if isinstance(assessment, Ended) else assessment.until
    if isinstance(assessment, Ended) and (until is None or until <= now):
        return AttemptActions((_ended(snapshot, recurrence, assessment, now),))
    status = _watched(recurrence, workload, snapshot.devices, now)
    if status == written:
        return AttemptActions((), until)
    return AttemptActions((WriteRecurrenceStatus(recurrence, status),), until)


def cancelled(snapshot: Snapshot, recurrence: TrainingRecurrence, why: str, now: datetime) -> Action:
    """Give up an attempt that is to make room; its workload is ended in the next turn."""
    return _ended(snapshot, recurrence, Ended(Result.CANCELLED, why), now)


def _watched(
    recurrence: TrainingRecurrence, workload: WorkloadState | None, devices: int, now: datetime
) -> TrainingRecurrenceStatus:
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
            reason="Running" if runs else ENERGY_AWAITED if workload.phase.ended else "Waiting",
            message=ENERGY_AWAITED_MESSAGE if workload.phase.ended else workload.message,
            now=now,
        )
    ]
    if workload.phase.ended:
        conditions.append(
            condition(
                status.conditions,
                ENERGY_AWAITED,
                holds=True,
                reason="PodsEnded",
                message=ENERGY_AWAITED_MESSAGE,
                now=now,
            )
        )
    if progress.stop_requested or progress.finished:
        reason = "StopRequested" if progress.stop_requested else "Finished"
        text = progress.stop_reason or "the training said that it is done"
        conditions.append(condition(status.conditions, ENDING, holds=True, reason=reason, message=text, now=now))
    conditions.extend((*_limit_conditions(recurrence, now), *device_conditions(recurrence, workload, now)))
    return status.model_copy(
        update={
            "conditions": tuple(conditions),
            "workload_ref": status.workload_ref or _reference(workload),
            # Of the template that the workload was started from: a later one is of other attempts.
            "devices": devices if status.workload_ref is None else status.devices,
            "pods": _pods(recurrence, workload),
            "start_time": status.start_time or workload.started_at,
        }
    )


def _reference(workload: WorkloadState) -> WorkloadReference:
    return WorkloadReference(api_version=workload.api_version, kind=workload.kind, name=workload.name, uid=workload.uid)


def _pods(recurrence: TrainingRecurrence, workload: WorkloadState | None) -> tuple[PodReference, ...]:
    """Its pods, those that are gone among them: an agent may tell of them later."""
    seen = () if workload is None or not workload.owned else workload.pods
    known = {pod.uid: pod for pod in (*recurrence.status.pods, *seen)}
    return tuple(known.values())[:MAX_PODS]


def _ended(snapshot: Snapshot, recurrence: TrainingRecurrence, ended: Ended, now: datetime) -> Action:
    spec = snapshot.job.spec
    workload = snapshot.workloads.get(recurrence.metadata.name)
    progress = recurrence.status.progress or Progress()
    word = agent_energy_of(snapshot, recurrence)
    started = recurrence.status.start_time or (None if workload is None else workload.started_at)
    heard = told_until(workload, snapshot.agent_patience_seconds, now)
    usage = usage_at_end(progress, word, started=started, told_until=heard)
    cost = cost_of(recurrence.spec, progress, usage)
    energy = 0.0 if usage is None else float(usage.gpu_energy_joules)
    return WriteRecurrenceStatus(
        recurrence,
        recurrence.status.model_copy(
            update={
                "conditions": (
                    *_final_conditions(recurrence, ended, now),
                    *energy_conditions(recurrence, word, heard, now),
                    *_limit_conditions(recurrence, now),
                    *device_conditions(recurrence, workload, now),
                ),
                "workload_ref": recurrence.status.workload_ref
                or (None if workload is None or not workload.owned else _reference(workload)),
                "pods": _pods(recurrence, workload),
                "start_time": started,
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


def _limit_conditions(recurrence: TrainingRecurrence, now: datetime) -> tuple[Condition, ...]:
    """Whether the power limit that was decided, or those to be measured, could be held; a refusal fails no training."""
    spec, progress = recurrence.spec, recurrence.status.progress or Progress()
    refusal = progress.power_limit_refusal
    if (spec.power_limit_watts is None and not spec.profile_power_limits) or not progress.gpus:
        return ()
    if not refusal and progress.power_limit_watts is None:
        return ()
    text = f"{refusal}; the training goes on without, and what it costs counts for no limit" if refusal else ""
    reason = "Refused" if refusal else "Held"
    before = recurrence.status.conditions
    return (condition(before, POWER_LIMIT_HELD, holds=not refusal, reason=reason, message=text, now=now),)


def _awaited(snapshot: Snapshot, recurrence: TrainingRecurrence, workload: WorkloadState | None) -> datetime | None:
    """Until when the agents' last word on an ended attempt is waited for; None: there is nothing to wait for."""
    return awaited_until(
        agent_energy_of(snapshot, recurrence),
        workload,
        snapshot.agent_patience_seconds,
        awaited_since=changed_at(recurrence.status.conditions, ENERGY_AWAITED),
    )


def _none_ahead(recurrence: TrainingRecurrence, now: datetime) -> TrainingRecurrence:
    conditions = none_ahead(recurrence.status.conditions, now)
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"conditions": conditions})})
