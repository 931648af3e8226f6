"""The lifecycle of one attempt: start its workload, track it, end it, write its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import (
    MAX_PODS,
    PodReference,
    TrainingRecurrenceStatus,
    WorkloadReference,
)
from wattloop_operator.domain.names import MAX_ATTEMPT
from wattloop_operator.domain.snapshot import Snapshot, WorkloadPhase, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import (
    Action,
    EndWorkload,
    MergeUndelivered,
    ReconcileResult,
    StartWorkload,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.attempt.attempt_conditions import (
    ENDING,
    ENERGY_AWAITED,
    device_conditions,
    ended_conditions,
    energy_conditions,
    final_conditions,
    phase_conditions,
    power_limit_conditions,
    probe_conditions,
    profile_conditions,
    publication_conditions,
    rank_conditions,
)
from wattloop_operator.reconcile.attempt.ending import must_end, output_deadline
from wattloop_operator.reconcile.attempt.late_usage import with_late_usage
from wattloop_operator.reconcile.attempt.outcome import MAX_MESSAGE_CHARACTERS, Ended, assess
from wattloop_operator.reconcile.attempt.progress_summary import summary_due_at, summary_of
from wattloop_operator.reconcile.attempt.queue_wait import outdated, queue_conditions
from wattloop_operator.reconcile.conditions import not_in_future, true_since
from wattloop_operator.reconcile.energy.agent_energy import agent_energy_of, agent_report_deadline, coverage_end
from wattloop_operator.reconcile.energy.attempt_usage import (
    attempt_figures,
    cost_of,
    cost_status,
    unmeasured_message,
    usage_at_end,
)
from wattloop_operator.reconcile.learning.changed_job import training_digest
from wattloop_operator.reconcile.learning.same_place import places_before


def attempt_actions(snapshot: Snapshot, recurrence: TrainingAttempt, now: datetime) -> ReconcileResult:
    """Compute the actions that are due for one attempt, and when time alone makes another one due."""
    workload = snapshot.workloads.get(recurrence.metadata.name)
    if recurrence.status.result is not None or recurrence.outcome is not None:
        return ReconcileResult(tuple(_after_outcome(snapshot, recurrence, now)))
    if workload is None and not snapshot.was_started(recurrence):
        return ReconcileResult(_start_actions(snapshot, recurrence, now))
    first = None if workload is None else _before_assessment(snapshot, recurrence, workload, now)
    if first is not None:
        return ReconcileResult((first,))
    written, recurrence = recurrence.status, _with_valid_times(recurrence, now)
    assessment = assess(
        recurrence,
        workload,
        deadline_seconds=snapshot.job.spec.active_deadline_seconds,
        ending_since=true_since(recurrence.status.conditions, ENDING),
        observed_since=snapshot.observed_since,
        places_before=places_before(snapshot, recurrence),
        now=now,
    )
    if isinstance(assessment, Ended):
        waiting_since = true_since(recurrence.status.conditions, ENERGY_AWAITED)
        until = max(
            filter(
                None,
                (
                    _agent_report_deadline(snapshot, recurrence, workload, now),
                    output_deadline(recurrence, workload, waiting_since),
                ),
            ),
            default=None,
        )
        if until is None or until <= now:
            return ReconcileResult((_write_outcome(snapshot, recurrence, assessment, now),))
    else:
        until = assessment.until
    ends: tuple[Action, ...] = ()
    if workload is not None and workload.must_be_ended and must_end(recurrence):
        # The outcome follows once its processes have ended, with their whole energy.
        ends = (EndWorkload(recurrence, gracefully=True),)
    status = _status_without_outcome(recurrence, workload, snapshot.devices, now)
    summary_at = summary_due_at(recurrence, workload, now)
    if status == written and (summary_at is None or summary_at > now):
        return ReconcileResult(ends, min(filter(None, (until, summary_at)), default=None))
    status = status.model_copy(update={"progress": summary_of(recurrence)})
    return ReconcileResult((WriteRecurrenceStatus(recurrence, status), *ends), until)


def _before_assessment(
    snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState, now: datetime
) -> Action | None:
    """What precedes the question of how an attempt has ended: another one takes its place, or reports were left."""
    replaced = _replaced(snapshot, recurrence, workload)
    if replaced:
        return _write_outcome(snapshot, recurrence, Ended(Result.DISRUPTED, replaced), now)
    if not (workload.undelivered and workload.owned and recurrence.spec.reporting.uses_client):
        return None
    if recurrence.status.workload_ref is None:
        # By this reference alone a pod is known to run the attempt.
        return WriteRecurrenceStatus(recurrence, _status_without_outcome(recurrence, workload, snapshot.devices, now))
    return MergeUndelivered(recurrence, workload.undelivered)


def _after_outcome(snapshot: Snapshot, recurrence: TrainingAttempt, now: datetime) -> Iterator[Action]:
    if recurrence.status.result is None and recurrence.outcome is not None:
        # Decided before, perhaps by an operator that was killed before it wrote it to the object.
        yield WriteRecurrenceStatus(recurrence, recurrence.outcome)
        return
    # The outcome is written before the workload is ended, so that a crash in between cannot start it again.
    workload = snapshot.workloads.get(recurrence.metadata.name)
    if workload is not None and workload.must_be_ended:
        yield EndWorkload(recurrence)
    yield from with_late_usage(snapshot, recurrence, now)


def never_starts(snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState) -> bool:
    """Whether an attempt has not started, and the job has another template by now, or its runtime has changed.

    Something hinders its pods: nothing would end its wait, for an image that does not exist for example, and the job's
    next run waits for it. Or it waits in a queue, at the end of which the new template is wanted.
    """
    hindered = workload.owned and workload.phase is WorkloadPhase.PENDING and (workload.wait_reason or workload.queue)
    if not hindered or workload.started_at is not None or recurrence.status.start_time is not None:
        return False
    return _trains_another(snapshot, recurrence)


def _trains_another(snapshot: Snapshot, recurrence: TrainingAttempt) -> bool:
    """Whether a workload that is created now trains something else than what the attempt was decided for."""
    decided = recurrence.spec.template_digest
    if decided is None or snapshot.runtime_digest is None:
        return False
    return decided != training_digest(snapshot, warm_start=recurrence.spec.warm_start)


def _start_actions(snapshot: Snapshot, recurrence: TrainingAttempt, now: datetime) -> tuple[Action, ...]:
    """Create the workload of an attempt, unless it would not train what the attempt's digest says.

    Long may pass since the decision: the operator was away, or a quota refused the workload.
    """
    if snapshot.refusal:
        # A refused template would be refused again. The job's status gives the reason.
        return ()
    if _trains_another(snapshot, recurrence):
        message = _replacement_message(snapshot, recurrence, "its workload did not exist yet")
        return (_write_outcome(snapshot, recurrence, Ended(Result.DISRUPTED, message), now),)
    return (StartWorkload(recurrence),)


def _replaced(snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState) -> str:
    """Why another attempt takes the place of one that has not started; empty if none does."""
    if not never_starts(snapshot, recurrence, workload):
        return outdated(snapshot, recurrence, workload)
    return _replacement_message(snapshot, recurrence, workload.message)


def _replacement_message(snapshot: Snapshot, recurrence: TrainingAttempt, wait: str) -> str:
    what = "spec.template or its training runtime" if snapshot.runtime_digest else "spec.template"
    follows = "run" if recurrence.spec.attempt >= MAX_ATTEMPT else "attempt"
    return (
        f"it never started ({wait}), and {what} has changed: the next {follows} starts with the new one, "
        "and this one counts as none"
    )


def cancel_attempt(snapshot: Snapshot, recurrence: TrainingAttempt, reason: str, now: datetime) -> Action:
    """Write the outcome Cancelled. The next round ends the workload."""
    return _write_outcome(snapshot, recurrence, Ended(Result.CANCELLED, reason), now)


def _status_without_outcome(
    recurrence: TrainingAttempt, workload: WorkloadState | None, devices: int, now: datetime
) -> TrainingRecurrenceStatus:
    status = recurrence.status
    if workload is None:
        ended = tuple(ended_conditions(recurrence, now)) if must_end(recurrence) else status.conditions
        return status.model_copy(update={"conditions": ended})
    return status.model_copy(
        update={
            "conditions": (
                *phase_conditions(recurrence, workload, now),
                *queue_conditions(recurrence, workload, now),
                *power_limit_conditions(recurrence, now),
                *device_conditions(recurrence, workload, now),
            ),
            "workload_ref": status.workload_ref or _reference(workload),
            # From the template that started the workload. Later templates apply to other attempts.
            "devices": devices if status.workload_ref is None else status.devices,
            "pods": _pods(recurrence, workload),
            "image_digest": _image_digest(recurrence, workload),
            "start_time": status.start_time or workload.started_at or _observed_start(workload, now),
        }
    )


def _observed_start(workload: WorkloadState, now: datetime) -> datetime | None:
    """The start of a workload that runs and does not say since when."""
    return now if workload.phase is WorkloadPhase.RUNNING else None


def _write_outcome(snapshot: Snapshot, recurrence: TrainingAttempt, ended: Ended, now: datetime) -> Action:
    if recurrence.outcome is not None:
        return WriteRecurrenceStatus(recurrence, recurrence.outcome)
    workload = snapshot.workloads.get(recurrence.metadata.name)
    progress = recurrence.progress
    agents = agent_energy_of(snapshot, recurrence)
    started = recurrence.status.start_time or (None if workload is None else workload.started_at)
    until = coverage_end(workload, snapshot.agent_report_timeout_seconds, now)
    usage = usage_at_end(progress, agents, started=started, until=until)
    unmeasured = unmeasured_message(recurrence, ended.result, usage)
    if unmeasured:
        kept = ended.message[: MAX_MESSAGE_CHARACTERS - len(unmeasured) - 2]
        ended = Ended(ended.result, f"{kept}; {unmeasured}")
    energy = 0.0 if usage is None else float(usage.gpu_energy_joules)
    cost = cost_status(cost_of(recurrence.spec, progress, usage), energy, snapshot.tariff)
    return WriteRecurrenceStatus(
        recurrence,
        recurrence.status.model_copy(
            update={
                "conditions": (
                    *final_conditions(recurrence, ended.result, ended.message, now),
                    *queue_conditions(recurrence, None, now, admitted=started is not None),
                    *energy_conditions(recurrence, agents, until, now),
                    *publication_conditions(recurrence, ended.result, now),
                    *power_limit_conditions(recurrence, now),
                    *profile_conditions(recurrence, now),
                    *probe_conditions(recurrence, now),
                    *device_conditions(recurrence, workload, now),
                    *rank_conditions(recurrence, workload, ended.result, now),
                ),
                "workload_ref": recurrence.status.workload_ref
                or (None if workload is None or not workload.owned else _reference(workload)),
                "pods": _pods(recurrence, workload),
                "image_digest": _image_digest(recurrence, workload),
                "start_time": started,
                "completion_time": (None if workload is None else workload.ended_at) or now,
                "progress": summary_of(recurrence, ended=True),
                "usage": usage,
                **cost,
                **attempt_figures(usage, progress),
                "result": ended.result,
                "epochs": to_decimal(0) if progress.epoch is None else progress.epoch,
                "failure_place": ended.place,
                "message": ended.message[:MAX_MESSAGE_CHARACTERS],
            }
        ),
    )


def _reference(workload: WorkloadState) -> WorkloadReference:
    return WorkloadReference(api_version=workload.api_version, kind=workload.kind, uid=workload.uid)


def _pods(recurrence: TrainingAttempt, workload: WorkloadState | None) -> tuple[PodReference, ...]:
    """All pods of the attempt. Deleted ones are kept: an agent may report their energy later."""
    current = () if workload is None or not workload.owned else workload.pods
    references = (PodReference(uid=pod.uid, node=pod.node) for pod in current)
    known = {pod.uid: pod for pod in (*recurrence.status.pods, *references)}
    return tuple(known.values())[:MAX_PODS]


def _image_digest(recurrence: TrainingAttempt, workload: WorkloadState | None) -> str | None:
    """The image that the attempt started with. A pod that replaces a lost one may run another."""
    known = recurrence.status.image_digest
    return known if known is not None or workload is None or not workload.owned else workload.image_digest


def _agent_report_deadline(
    snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime
) -> datetime | None:
    return agent_report_deadline(
        agent_energy_of(snapshot, recurrence),
        _pods_ended_at(recurrence, workload, now),
        snapshot.agent_report_timeout_seconds,
        waiting_since=true_since(recurrence.status.conditions, ENERGY_AWAITED),
    )


def _pods_ended_at(recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime) -> datetime | None:
    """When the pods of an attempt ended; None if they have not, or if Wattloop has not seen their end."""
    if workload is None:
        # The workload of a training that Wattloop ended is gone with its last pod.
        return now if must_end(recurrence) else None
    return workload.ended_at if workload.owned and workload.phase.ended else None


def _with_valid_times(recurrence: TrainingAttempt, now: datetime) -> TrainingAttempt:
    conditions = not_in_future(recurrence.status.conditions, now)
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"conditions": conditions})})
