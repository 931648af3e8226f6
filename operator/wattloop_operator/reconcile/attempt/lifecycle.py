"""The lifecycle of one attempt: start its workload, track it, end it, write its outcome."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

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
    ENERGY_AGREES,
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
from wattloop_operator.reconcile.attempt.outcome import MAX_MESSAGE_CHARACTERS, Ended, assess
from wattloop_operator.reconcile.attempt.progress_deadline import summary_due_at, summary_of
from wattloop_operator.reconcile.attempt.queue_wait import outdated, queue_conditions
from wattloop_operator.reconcile.conditions import not_in_future, true_since
from wattloop_operator.reconcile.energy.agent_energy import END_ROUNDING_SECONDS, agent_energy_of, coverage_end
from wattloop_operator.reconcile.energy.attempt_usage import (
    unmeasured_message,
    usage_at_end,
    usage_status,
    without_unmeasured_message,
)
from wattloop_operator.reconcile.learning.changed_job import training_digest
from wattloop_operator.reconcile.learning.same_place import places_before

# The last lines are read within a second or two. A pod that is deleted early has no log any more.
OUTPUT_TIMEOUT_SECONDS = 30


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
    written, conditions = recurrence.status, not_in_future(recurrence.status.conditions, now)
    recurrence = recurrence.model_copy(update={"status": written.model_copy(update={"conditions": conditions})})
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
        until = _final_reports_deadline(snapshot, recurrence, workload, now)
        if until is None or until <= now:
            return ReconcileResult((write_outcome(snapshot, recurrence, assessment, now),))
    else:
        until = assessment.until
    ends: tuple[Action, ...] = ()
    if workload is not None and workload.must_be_ended and recurrence.must_end:
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
    hindered = workload.owned and workload.phase is WorkloadPhase.PENDING and (workload.wait_reason or workload.queue)
    starts = not hindered or workload.started_at is not None or recurrence.status.start_time is not None
    # Nothing would end the wait, for an image that does not exist for example, and the job's next run waits for it.
    if not starts and _trains_another(snapshot, recurrence):
        replaced = _replacement_message(snapshot, recurrence, workload.message)
    else:
        replaced = outdated(snapshot, recurrence, workload)
    if replaced:
        return write_outcome(snapshot, recurrence, Ended(Result.DISRUPTED, replaced), now)
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
        return (write_outcome(snapshot, recurrence, Ended(Result.DISRUPTED, message), now),)
    return (StartWorkload(recurrence),)


def _replacement_message(snapshot: Snapshot, recurrence: TrainingAttempt, wait: str) -> str:
    what = "spec.template or its training runtime" if snapshot.runtime_digest else "spec.template"
    follows = "run" if recurrence.spec.attempt >= MAX_ATTEMPT else "attempt"
    return (
        f"it never started ({wait}), and {what} has changed: the next {follows} starts with the new one, "
        "and this one counts as none"
    )


def _status_without_outcome(
    recurrence: TrainingAttempt, workload: WorkloadState | None, devices: int, now: datetime
) -> TrainingRecurrenceStatus:
    status = recurrence.status
    if workload is None:
        ended = tuple(ended_conditions(recurrence, now)) if recurrence.must_end else status.conditions
        return status.model_copy(update={"conditions": ended})
    return status.model_copy(
        update={
            "conditions": (
                *phase_conditions(recurrence, workload, now),
                *queue_conditions(recurrence, workload, now),
                *power_limit_conditions(recurrence, now),
                *device_conditions(recurrence, workload, now),
            ),
            **_workload_fields(recurrence, workload),
            # From the template that started the workload. Later templates apply to other attempts.
            "devices": devices if status.workload_ref is None else status.devices,
            "start_time": status.start_time
            or workload.started_at
            or (now if workload.phase is WorkloadPhase.RUNNING else None),
        }
    )


def write_outcome(snapshot: Snapshot, recurrence: TrainingAttempt, ended: Ended, now: datetime) -> Action:
    """Write the outcome of an attempt. The next round ends its workload."""
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
                **_workload_fields(recurrence, workload),
                "start_time": started,
                "completion_time": (None if workload is None else workload.ended_at) or now,
                "progress": summary_of(recurrence, ended=True),
                **usage_status(recurrence.spec, progress, usage, snapshot.tariff),
                "result": ended.result,
                "epochs": to_decimal(0) if progress.epoch is None else progress.epoch,
                "failure_place": ended.place,
                "message": ended.message[:MAX_MESSAGE_CHARACTERS],
            }
        ),
    )


def _workload_fields(recurrence: TrainingAttempt, workload: WorkloadState | None) -> dict[str, Any]:
    """What a status says of the workload.

    Deleted pods are kept: an agent may report their energy later. The image is the one that the attempt started with: a
    pod that replaces a lost one may run another.
    """
    status, owned = recurrence.status, None if workload is None or not workload.owned else workload
    if owned is None:
        return {"workload_ref": status.workload_ref, "pods": status.pods, "image_digest": status.image_digest}
    references = (PodReference(uid=pod.uid, node=pod.node) for pod in owned.pods)
    pods = {pod.uid: pod for pod in (*status.pods, *references)}
    reference = WorkloadReference(api_version=owned.api_version, kind=owned.kind, uid=owned.uid)
    return {
        "workload_ref": status.workload_ref or reference,
        "pods": tuple(pods.values())[:MAX_PODS],
        "image_digest": owned.image_digest if status.image_digest is None else status.image_digest,
    }


def _final_reports_deadline(
    snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime
) -> datetime | None:
    """Until when the outcome waits for the agents' final report and the rest of the output; None: it does not wait.

    The end of a workload is by the clock of another machine, so the wait begins at the condition EnergyAwaited at last.
    """
    if workload is None:
        # The workload of a training that Wattloop ended is gone with its last pod.
        ended_at = now if recurrence.must_end else None
    else:
        ended_at = workload.ended_at if workload.owned and workload.phase.ended else None
    agents, timeout_seconds = agent_energy_of(snapshot, recurrence), snapshot.agent_report_timeout_seconds
    has_gpus = agents.energies or agents.expected_devices
    waits = [timeout_seconds] if timeout_seconds and has_gpus and not agents.final else []
    if recurrence.spec.reporting.reads_output and not recurrence.progress.finished and not recurrence.must_end:
        waits.append(OUTPUT_TIMEOUT_SECONDS)
    if ended_at is None or not waits:
        return None
    since = true_since(recurrence.status.conditions, ENERGY_AWAITED) or ended_at
    return min(ended_at, since) + timedelta(seconds=max(waits))


def with_late_usage(snapshot: Snapshot, recurrence: TrainingAttempt, now: datetime) -> Iterator[WriteRecurrenceStatus]:
    """Update the usage of an ended attempt if the agents' final report differs from it."""
    status = recurrence.status
    agents = agent_energy_of(snapshot, recurrence)
    if status.completion_time is None or not agents.final:
        return
    progress = recurrence.progress
    until = status.completion_time + timedelta(seconds=END_ROUNDING_SECONDS)
    usage = usage_at_end(progress, agents, started=status.start_time, until=until)
    if usage is None or usage == status.usage:
        return
    figures = usage_status(recurrence.spec, progress, usage, snapshot.tariff)
    message = without_unmeasured_message(recurrence, status) if figures["cost_joules"] is not None else status.message
    conditions = tuple(
        each.model_copy(update={"message": message}) if each.message == status.message else each
        for each in status.conditions
        if each.type != ENERGY_AGREES
    )
    yield WriteRecurrenceStatus(
        recurrence,
        status.model_copy(
            update={
                "conditions": (*conditions, *energy_conditions(recurrence, agents, until, now)),
                "message": message,
                **figures,
            }
        ),
    )
