"""The verdict on an epoch: whether the ranks of an attempt go on after it, decided once for all of them.

Ranks that train together must end after the same epoch, because each waits for the others in its next
step. So a verdict is part of the progress, is written before it is answered, and never changes. It is
decided when rank 0, which reports the metric, asks; the other ranks wait for it. A rank that asks late, or
asks another replica, reads the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterable

from wattloop.messages import MAX_REASON_CHARACTERS, Answer, Report
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus

# A verdict covers further epochs if they are short. A stop is late by at most this part of the epochs so far.
MAX_DELAY_DIVISOR = 20


def with_verdict(progress: Progress, reports: Iterable[Report]) -> Progress:
    """The progress with the verdicts that rank 0 asks for in these reports; a known verdict stays.

    Args:
        progress: The progress after these reports, with a request to stop if one is due.
        reports: The reports that were merged into it.
    """
    for report in reports:
        epoch = report.verdict_epoch
        known = progress.stop_epoch is not None or (epoch or 0) <= progress.decided_epoch
        if report.rank != 0 or epoch is None or known:
            continue
        if progress.reached or progress.stop_requested:
            return progress.model_copy(update={"stop_epoch": epoch})
        further = min(report.epochs_ahead, epoch // MAX_DELAY_DIVISOR)
        progress = progress.model_copy(update={"decided_epoch": epoch + further})
    return progress


def answer_to(recurrence: TrainingRecurrence, report: Report) -> Answer:
    """The answer to a report that is merged into the recurrence.

    For a rank that asks for a verdict, only the verdict decides whether the answer is to stop. The answer to every
    other report is whether the attempt is to stop.
    """
    status = recurrence.status
    progress = status.progress or Progress()
    stop, reason = progress.stop_requested, progress.stop_reason
    if status.result is not None:
        stop, reason = True, f"the attempt has ended: {status.message}"[:MAX_REASON_CHARACTERS]
    stop_epoch = _stop_epoch(status, progress)
    if report.verdict_epoch is not None:
        stop = stop_epoch is not None and report.verdict_epoch >= stop_epoch
    return Answer(
        stop=stop,
        reason=reason if stop else "",
        reached=progress.reached,
        decided_epoch=progress.decided_epoch,
        stop_epoch=stop_epoch,
    )


def _stop_epoch(status: TrainingRecurrenceStatus, progress: Progress) -> int | None:
    """The epoch after which all ranks stop: after the end of an attempt, the first one without a verdict."""
    if progress.stop_epoch is not None or status.result is None:
        return progress.stop_epoch
    return progress.decided_epoch + 1
