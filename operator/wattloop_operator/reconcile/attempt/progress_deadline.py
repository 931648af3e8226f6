"""What a person reads of the progress of an attempt, and when the silence of its processes ends it.

Each report of any process is a heartbeat. The deadline is measured from the latest of: the last report of any process,
the time since which all pods run, and the time since which this operator observes the attempt. The attempt is hung when
all processes are silent, and the one that is silent longest is named, and those that never reported.
"""

from datetime import datetime, timedelta
from decimal import Decimal

from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.field_types import format_time, to_decimal
from wattloop_operator.domain.progress import MAX_HEARTBEATS, LatestReport, Progress
from wattloop_operator.domain.quantities import epochs_text
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadPod, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import cost_limit
from wattloop_operator.reconcile.attempt.ended_ranks import named_ranks
from wattloop_operator.reconcile.energy.attempt_usage import cost_of, usage_of
from wattloop_operator.reconcile.energy.epoch_usage import usage_without_trials
from wattloop_operator.reconcile.energy.limit_measurements import holds_chosen

MAX_NAMED_PODS = 3
# Half of the time that the attempt has run, so that a short one is seen, too.
MIN_INTERVAL, MAX_INTERVAL = timedelta(seconds=5), timedelta(seconds=30)


def with_heartbeat(
    recurrence: TrainingAttempt,
    progress: Progress,
    rank: int,
    now: datetime,
    asked_epoch: int | None = None,
    *,
    pod_uid: str = "",
) -> Progress:
    """The progress after a sign of life of a process.

    Unchanged if the attempt has no progress deadline, or if the process repeats a question: it waits for rank 0.

    `asked_epoch`: the epoch after which the process asks whether to go on; None if it does not ask. `pod_uid`: UID of
    its pod; empty if it has none.
    """
    if recurrence.spec.progress_deadline_seconds is None:
        return progress
    known = {each.rank: each for each in progress.heartbeats}
    before = known.get(rank)
    repeats = before is not None and before.asked_epoch == asked_epoch
    if asked_epoch is not None and (repeats or rank >= MAX_HEARTBEATS):
        return progress
    # The API's times are whole seconds in most places; more digits would only take space.
    now = now.replace(microsecond=0)
    if rank < MAX_HEARTBEATS:
        # A report between two questions does not make the second a new one.
        asked = asked_epoch if asked_epoch is not None or before is None else before.asked_epoch
        known[rank] = LatestReport(rank=rank, time=now, pod_uid=pod_uid, asked_epoch=asked)
    heartbeats = tuple(known[rank] for rank in sorted(known))
    return progress.model_copy(update={"last_report_time": now, "heartbeats": heartbeats})


def hung_at(recurrence: TrainingAttempt, workload: WorkloadState, observed_since: datetime | None) -> datetime | None:
    """When an attempt becomes hung unless a process reports; None if it cannot.

    `observed_since`: since when the operator observes the attempt without interruption; None: always.
    """
    seconds = recurrence.spec.progress_deadline_seconds
    since = _silent_since(recurrence, workload, observed_since)
    return None if seconds is None or since is None else since + timedelta(seconds=seconds)


def hang_message(recurrence: TrainingAttempt, workload: WorkloadState) -> str:
    """Who was silent for how long, and what to look at."""
    progress = recurrence.progress
    text = f"no process reported for {recurrence.spec.progress_deadline_seconds} s (progressDeadlineSeconds)"
    if not progress.heartbeats:
        since = "" if workload.all_running_since is None else f" since {format_time(workload.all_running_since)}"
        only = f" in {workload.pods[0]}" if len(workload.pods) == 1 else ""
        return (
            f"{text}, and none ever did although they run{only}{since}; a training that reports less often needs a "
            "longer deadline or calls run.step"
        )
    silent = min(progress.heartbeats, key=lambda each: (each.time, each.rank))
    epochs = "" if progress.epoch is None else f" after {epochs_text(progress.epoch)}"
    pod = _pod_of(silent, workload)
    where = "" if pod is None else f" in {pod}"
    return (
        f"{text}; rank {silent.rank}{where} is silent longest, since {format_time(silent.time)}{epochs}"
        f"{_never_reported(progress, workload)}; see its log"
    )


def _never_reported(progress: Progress, workload: WorkloadState) -> str:
    reported = {each.rank for each in progress.heartbeats}
    ranks = [rank for rank in range(min(progress.ranks, MAX_HEARTBEATS)) if rank not in reported]
    if not ranks:
        return ""
    uids = {each.pod_uid for each in progress.heartbeats}
    pods = [] if "" in uids else [str(pod) for pod in workload.pods if pod.uid not in uids]
    more = f" and {len(pods) - MAX_NAMED_PODS} others" if len(pods) > MAX_NAMED_PODS else ""
    from_pods = f", and no process in {', '.join(pods[:MAX_NAMED_PODS])}{more}" if pods else ""
    return f"; {named_ranks(ranks, progress.ranks)} never reported{from_pods}"


def _pod_of(silent: LatestReport, workload: WorkloadState) -> WorkloadPod | None:
    if silent.pod_uid:
        return next((pod for pod in workload.pods if pod.uid == silent.pod_uid), None)
    # What a pod without a token prints is that of the first one.
    first = [pod for pod in workload.pods if not pod.index]
    return first[0] if silent.rank == 0 and len(first) == 1 else None


def _silent_since(
    recurrence: TrainingAttempt, workload: WorkloadState, observed_since: datetime | None
) -> datetime | None:
    if workload.all_running_since is None:
        return None
    moments = (workload.all_running_since, recurrence.progress.last_report_time, observed_since)
    return max(moment for moment in moments if moment is not None)


def summary_of(recurrence: TrainingAttempt, *, ended: bool = False) -> ProgressSummary | None:
    """The summary of an attempt; what its status states, as long as nothing is reported.

    The row of its progress may be lost: what was written before is true still, and the next report replaces it.

    `ended`: whether it ends now. A limit that it only measured then is not the one that it ran with.
    """
    progress = recurrence.progress
    if progress == Progress():
        return recurrence.status.progress
    usage, predicted = usage_of(progress), progress.final_metric
    only_measured = ended and recurrence.spec.profile_power_limits and not holds_chosen(progress)
    cost = cost_percent(recurrence)
    return ProgressSummary(
        epoch=progress.epoch,
        metric=progress.metric,
        curve=progress.curve,
        final_metric=() if predicted is None else (predicted.low, predicted.metric, predicted.high),
        power_watts=power_watts(progress),
        power_limit_watts=None if only_measured else held_limit_watts(progress),
        energy_joules=None if usage is None else usage.gpu_energy_joules,
        time_seconds=None if usage is None else usage.duration_seconds,
        cost_percent=None if cost is None else to_decimal(round(cost, 2)),
        last_report_time=_last_report_time(recurrence),
    )


def with_summary(recurrence: TrainingAttempt) -> TrainingAttempt:
    """An attempt whose status states its progress as it is now, for readers that have its row."""
    status = recurrence.status.model_copy(update={"progress": summary_of(recurrence)})
    return recurrence.model_copy(update={"status": status})


def summary_due_at(recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime) -> datetime | None:
    """When the summary is to be written, if nothing else is before; None while nothing runs.

    The time of the last report that the status states is that of its last write, or a little earlier.
    """
    if workload is None or workload.phase is not WorkloadPhase.RUNNING:
        return None
    written, reported = recurrence.status.progress, _last_report_time(recurrence)
    started = recurrence.status.start_time
    since = started if written is None else written.last_report_time
    is_stated = written is not None and reported == since
    # A report wakes nobody where another replica than the leader has received it.
    if since is None or reported is None or is_stated:
        since = now
    if since > now:
        # The clock was set back.
        return now
    return since + min(max((since - (started or since)) / 2, MIN_INTERVAL), MAX_INTERVAL)


def _last_report_time(recurrence: TrainingAttempt) -> datetime | None:
    """When the latest report was stored, in whole seconds, as the status has it."""
    return None if recurrence.reported_at is None else recurrence.reported_at.replace(microsecond=0)


def power_watts(progress: Progress) -> Decimal | None:
    """Mean power of all GPUs between their latest two reports; None if it is not known of each."""
    recent = [each.recent for each in progress.gpus]
    if not recent or None in recent:
        return None
    return sum((each.power_watts for each in recent if each is not None), Decimal(0))


def held_limit_watts(progress: Progress) -> int | None:
    """The limit that the processes hold, or that the agents hold on all pods of the attempt."""
    if progress.power_limit_watts is not None or progress.agent_limits is None:
        return progress.power_limit_watts
    held = {each.held_watts for each in progress.agent_limits.pods}
    return held.pop() if len(held) == 1 else None


def cost_percent(recurrence: TrainingAttempt) -> float | None:
    """Cost so far, without the trials of probes, in percent of that at which it is stopped; None if not known."""
    progress = recurrence.progress
    limit = cost_limit(recurrence.spec, progress)
    cost = cost_of(recurrence.spec, progress, usage_without_trials(progress))
    return 100 * cost / float(limit) if limit and cost is not None else None
