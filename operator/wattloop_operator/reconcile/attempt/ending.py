"""When an attempt whose training does not learn to stop is ended from outside."""

from __future__ import annotations

from datetime import datetime, timedelta

from wattloop_operator.domain.snapshot import WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt

# The last lines are read within a second or two. A pod that is deleted early has no log any more.
OUTPUT_TIMEOUT_SECONDS = 30


def must_end(recurrence: TrainingAttempt) -> bool:
    """Whether the attempt has nothing more to do, and its script does not know.

    It has reached the target, or was asked to stop, as one that goes on after its last epoch is. An
    attempt that is just at its last epoch ends by itself.
    """
    progress = recurrence.progress
    return not recurrence.spec.reporting.uses_client and (progress.reached or progress.stop_requested)


def output_deadline(
    recurrence: TrainingAttempt, workload: WorkloadState | None, waiting_since: datetime | None
) -> datetime | None:
    """Deadline for the rest of the output of an attempt that has ended; None if there is nothing to wait for.

    Args:
        recurrence: The attempt.
        workload: Its workload. Its end is by the clock of another machine.
        waiting_since: When the wait began, by the clock that it is measured with; None if it begins now.
    """
    progress = recurrence.progress
    if not recurrence.spec.reporting.reads_output or progress.finished or must_end(recurrence):
        return None
    if workload is None or not workload.owned or not workload.phase.ended or workload.ended_at is None:
        return None
    begin = workload.ended_at if waiting_since is None else min(workload.ended_at, waiting_since)
    return begin + timedelta(seconds=OUTPUT_TIMEOUT_SECONDS)
