"""Hung attempts: when processes last reported, and when their silence ends the attempt.

Each report of any process is a heartbeat. The deadline is measured from the latest of: the last report of any process,
the time since which all pods run, and the time since which this operator observes the attempt. The attempt is hung when
all processes are silent, and the one that is silent longest is named, and those that never reported.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from wattloop_operator.api.field_types import format_time
from wattloop_operator.domain.progress import MAX_HEARTBEATS, LatestReport, Progress
from wattloop_operator.domain.quantities import epochs_text
from wattloop_operator.domain.snapshot import WorkloadPod, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.ended_ranks import named_ranks

MAX_NAMED_PODS = 3


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
    progress = recurrence.progress
    moments = (workload.all_running_since, progress.last_report_time, observed_since)
    return max(moment for moment in moments if moment is not None)
