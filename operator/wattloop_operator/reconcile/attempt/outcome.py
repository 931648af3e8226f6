"""How an attempt stands, from what its workload and its reports say: still going on, to be ended, or ended and how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from wattloop_operator.api.attempt import Progress, Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.reconcile.attempt.device_health import known_unhealthy

GRACE_SECONDS = 60
RETRIED = frozenset({Result.STOPPED, Result.EXHAUSTED, Result.CRASHED, Result.DEADLINE_EXCEEDED, Result.DISRUPTED})


@dataclass(frozen=True)
class Ended:
    """The attempt has ended, or is given up: what still runs of its workload is to be ended.

    Attributes:
        result: How.
        message: What happened and, where one is needed, the next step.
    """

    result: Result
    message: str


@dataclass(frozen=True)
class GoingOn:
    """The attempt goes on; `until` is when time alone may end it."""

    until: datetime | None = None


def assess(
    recurrence: TrainingRecurrence,
    workload: WorkloadState | None,
    *,
    deadline_seconds: int | None,
    asked_to_end_at: datetime | None,
    now: datetime,
) -> Ended | GoingOn:
    """Find out how an attempt stands.

    Args:
        recurrence: The attempt; it has no result yet.
        workload: What is seen of its workload; None where there is none.
        deadline_seconds: The job's active deadline.
        asked_to_end_at: Since when it is known that the training shall end or said that it is done.
        now: The time.
    """
    progress = recurrence.status.progress or Progress()
    if workload is None:
        return _without_workload(recurrence, progress)
    if not workload.owned:
        text = f"an object named {workload.name} that is not Wattloop's is in the way; delete or rename it"
        return Ended(Result.REFUSED, text)
    if workload.phase is WorkloadPhase.SUCCEEDED:
        return Ended(*_judged(recurrence, progress))
    if workload.phase is WorkloadPhase.FAILED:
        return _failed(recurrence, progress, workload)
    deadline = None
    if deadline_seconds is not None and workload.started_at is not None:
        deadline = workload.started_at + timedelta(seconds=deadline_seconds)
    grace = None if asked_to_end_at is None else asked_to_end_at + timedelta(seconds=GRACE_SECONDS)
    return _running(recurrence, deadline, grace, now)


def _without_workload(recurrence: TrainingRecurrence, progress: Progress) -> Ended | GoingOn:
    if recurrence.status.workload_ref is None:
        return GoingOn()
    if progress.reached or progress.finished:
        return Ended(*_judged(recurrence, progress))
    return Ended(Result.CANCELLED, "its workload was deleted before it ended; it is not started again")


def _failed(recurrence: TrainingRecurrence, progress: Progress, workload: WorkloadState) -> Ended:
    if progress.reached:
        return Ended(*_judged(recurrence, progress))
    if progress.stop_requested:
        return Ended(Result.STOPPED, progress.stop_reason)
    if workload.failure is Failure.DISRUPTED:
        return Ended(Result.DISRUPTED, f"ended from outside: {workload.message}; nothing is learned from it")
    if workload.failure is Failure.DEADLINE:
        return Ended(Result.DEADLINE_EXCEEDED, workload.message)
    unhealthy = known_unhealthy(recurrence)
    if unhealthy:
        # A batch size is not blamed for a broken device.
        return Ended(Result.DISRUPTED, f"{unhealthy}; {workload.message}; nothing is learned from it")
    return Ended(Result.CRASHED, f"batch size {recurrence.spec.batch_size}: {workload.message or 'its process died'}")


def _running(
    recurrence: TrainingRecurrence, deadline: datetime | None, grace: datetime | None, now: datetime
) -> Ended | GoingOn:
    progress = recurrence.status.progress or Progress()
    if deadline is not None and now >= deadline:
        text = f"still running at activeDeadlineSeconds; {_last_word(progress)}"
        return Ended(Result.DEADLINE_EXCEEDED, text)
    if grace is not None and now >= grace:
        result, message = _judged(recurrence, progress)
        return Ended(result, f"{message}; its process did not end within {GRACE_SECONDS} s")
    return GoingOn(min((end for end in (deadline, grace) if end is not None), default=None))


def _judged(recurrence: TrainingRecurrence, progress: Progress) -> tuple[Result, str]:
    """What a process that ended by itself came to. Reaching the target counts, however dear or late."""
    target = recurrence.spec.target
    if progress.reached:
        return Result.REACHED, f"{target.metric} reached {progress.metric} after {progress.epoch} epochs"
    if progress.stop_requested:
        return Result.STOPPED, progress.stop_reason
    if progress.metric is None:
        text = (
            f"ended without reporting {target.metric}: call run.report(metric=…) after each evaluation; "
            "nothing is learned from it"
        )
        return Result.MISSING_METRIC, text
    return Result.EXHAUSTED, (
        f"{target.metric} got to {progress.metric}, the target is {target.threshold}, after {progress.epoch} epochs"
    )


def _last_word(progress: Progress) -> str:
    if progress.metric is None:
        return "it never reported a metric"
    return f"its last report was of epoch {progress.epoch}"
