"""A job's recurrences, each with its attempts: which are open, which index comes next, which slots are taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.attempt.outcome import RETRIED
from wattloop_operator.reconcile.learning import observations
from wattloop_operator.reconcile.naming import RUN_REQUEST_PREFIX, slot_in_name


@dataclass(frozen=True)
class Recurrence:
    """One recurrence with the attempts that there are objects of.

    Attributes:
        index: Its index.
        attempts: Rising by attempt; at least one.
    """

    index: int
    attempts: tuple[TrainingRecurrence, ...]

    @property
    def latest(self) -> TrainingRecurrence:
        """The latest attempt."""
        return self.attempts[-1]

    def retry_due(self, retry_limit: int) -> bool:
        """Whether another attempt is to follow."""
        return self.latest.status.result in RETRIED and self.latest.spec.attempt < retry_limit

    def is_open(self, retry_limit: int) -> bool:
        """Whether it goes on: an attempt runs, or another one is to follow."""
        return self.latest.status.result is None or self.retry_due(retry_limit)


def recurrences_of(snapshot: Snapshot) -> tuple[Recurrence, ...]:
    """The recurrences that there are objects of, by rising index."""
    by_index: dict[int, list[TrainingRecurrence]] = {}
    for each in snapshot.recurrences:
        by_index.setdefault(each.spec.index, []).append(each)
    return tuple(
        Recurrence(index, tuple(sorted(by_index[index], key=lambda each: each.spec.attempt)))
        for index in sorted(by_index)
    )


def next_index(snapshot: Snapshot) -> int:
    """The index of the next recurrence: beyond all that the objects, the store and the status know of."""
    known = [each.spec.index for each in snapshot.recurrences]
    known += [record.recurrence for record in snapshot.records]
    return max(max(known, default=-1) + 1, snapshot.job.status.counts.recurrences)


def latest_slot_time(snapshot: Snapshot) -> datetime | None:
    """The latest scheduled time that was started or given up, by whichever memory knows of it."""
    status = snapshot.job.status
    known = [each.spec.scheduled_time for each in snapshot.recurrences if not _requested(each.spec.slot)]
    known += [
        record.scheduled_at
        for record in snapshot.records
        if not _requested(slot_in_name(record.job_name, record.recurrence_name))
    ]
    known += [moment for moment in (status.last_schedule_time, status.last_missed_time) if moment is not None]
    return max(known, default=None)


def taken_slots(snapshot: Snapshot) -> frozenset[str]:
    """The slots of which a recurrence is known."""
    slots = {each.spec.slot for each in snapshot.recurrences}
    return frozenset(slots | {slot_in_name(each.job_name, each.recurrence_name) for each in snapshot.records})


def last_end(snapshot: Snapshot) -> datetime | None:
    """When the latest attempt ended."""
    ends = [record.finished_at for record in snapshot.records]
    ends += [observations.ended_at(each) for each in snapshot.recurrences if each.status.result is not None]
    return max(ends, default=None)


def _requested(slot: str) -> bool:
    return slot.startswith(RUN_REQUEST_PREFIX)
