"""Which ended recurrences are deleted: those beyond the history limits whose outcome the store remembers."""

from __future__ import annotations

from collections.abc import Iterator

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot


def beyond_limits(snapshot: Snapshot, open_indices: frozenset[int]) -> Iterator[TrainingRecurrence]:
    """Yield the attempts to delete, oldest first; those of a recurrence that is still open stay."""
    stored = {(record.recurrence, record.attempt) for record in snapshot.records}
    by_index: dict[int, list[TrainingRecurrence]] = {}
    for recurrence in snapshot.recurrences:
        by_index.setdefault(recurrence.spec.index, []).append(recurrence)
    closed = sorted(index for index in by_index if index not in open_indices)
    reached = [index for index in closed if any(each.status.result is Result.REACHED for each in by_index[index])]
    failed = [index for index in closed if index not in reached]
    spec = snapshot.job.spec
    surplus = reached[: max(len(reached) - spec.successful_history_limit, 0)]
    surplus += failed[: max(len(failed) - spec.failed_history_limit, 0)]
    for index in sorted(surplus):
        for recurrence in sorted(by_index[index], key=lambda each: each.spec.attempt):
            if (index, recurrence.spec.attempt) in stored:
                yield recurrence
