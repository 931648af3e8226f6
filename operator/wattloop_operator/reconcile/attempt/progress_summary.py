"""What a person reads of the progress of an attempt, and when it is written to the status.

Each write is an object in etcd that all watchers receive, so there is at most one per interval beside other changes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import cost_limit
from wattloop_operator.reconcile.energy.attempt_usage import cost_of, usage_of
from wattloop_operator.reconcile.energy.epoch_usage import usage_without_trials
from wattloop_operator.reconcile.energy.limit_measurements import holds_chosen

# Half of the time that the attempt has run, so that a short one is seen, too.
MIN_INTERVAL, MAX_INTERVAL = timedelta(seconds=5), timedelta(seconds=30)


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
