"""Retries: which results another attempt of the same recurrence follows, and how many."""

from __future__ import annotations

from collections.abc import Iterable

from wattloop_operator.api.attempt import Result
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import CreateRecurrence
from wattloop_operator.reconcile.job.recurrences import Recurrence, recurrences_of
from wattloop_operator.reconcile.learning.decision import Attempt, decide

RETRIED_RESULTS = frozenset(
    {
        Result.STOPPED,
        Result.EXHAUSTED,
        Result.DIVERGED,
        Result.CRASHED,
        Result.HUNG,
        Result.DEADLINE_EXCEEDED,
        Result.DISRUPTED,
    }
)
# Results after which a retry follows even if the decision ends the recurrence with the attempt.
ALWAYS_RETRIED_RESULTS = frozenset({Result.CRASHED, Result.HUNG, Result.DISRUPTED})


def is_retry_due(recurrence: Recurrence, limit: int) -> bool:
    """Whether another attempt of this recurrence must start.

    Args:
        recurrence: The recurrence.
        limit: The job's `spec.retryPolicy.limit`: the index of the last attempt that may start.
    """
    latest = recurrence.latest
    retried = ALWAYS_RETRIED_RESULTS if latest.spec.decision.last_attempt else RETRIED_RESULTS
    return latest.status.result in retried and latest.spec.attempt < limit


def open_recurrences(snapshot: Snapshot) -> tuple[Recurrence, ...]:
    """The recurrences with a running attempt or a retry that is due, by rising index."""
    limit = snapshot.job.spec.retry_policy.limit
    return tuple(
        each for each in recurrences_of(snapshot) if each.latest.status.result is None or is_retry_due(each, limit)
    )


def retry_actions(snapshot: Snapshot, recurrences: Iterable[Recurrence]) -> list[CreateRecurrence]:
    """Create the next attempt of each recurrence for which a retry is due.

    Raises:
        NoFeasibleArmError: No feasible batch size is left.
    """
    limit = snapshot.job.spec.retry_policy.limit
    due = (each.latest.spec for each in recurrences if is_retry_due(each, limit))
    return [
        CreateRecurrence(decide(snapshot, Attempt(spec.index, spec.attempt + 1, spec.slot, spec.scheduled_time)))
        for spec in due
    ]
