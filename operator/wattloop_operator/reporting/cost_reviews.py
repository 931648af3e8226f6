"""Reviews of running attempts by the policy, at a bounded rate.

A review reads the state of the job and computes the policy's model, so it costs far more than merging
a report. A training decides how often it evaluates its metric; it must not decide how often the
operator reviews it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from decimal import Decimal

from cachetools import LRUCache

from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import REVIEWED_FIELDS, evaluated_epoch, is_review_due
from wattloop_operator.reporting.interfaces import Review, TooManyRequestsError
from wattloop_operator.reporting.rate_limiters import Rate
from wattloop_operator.reporting.report_limits import MAX_RECURRENCES, SharedLimit

# Two at once: the cost of an epoch and its evaluation may be reported one after the other.
RECURRENCE_RATE = Rate(per_second=1.0, burst=2.0)
TOTAL_RATE = Rate(per_second=20.0, burst=100.0)

Key = tuple[str, str, str]


class CostReviews:
    """Has the policy review attempts, at a bounded rate for each and for all together. Thread-safe.

    A review that is due and not allowed now is made with a later report. The result of the latest
    review is kept until it is written, because progress is merged again after a conflict.

    Args:
        review: Makes one review.
        clock: Monotonic seconds.
    """

    def __init__(self, review: Review, clock: Callable[[], float]) -> None:
        self._review = review
        self._lock = threading.Lock()
        self._limit = SharedLimit(clock, RECURRENCE_RATE, TOTAL_RATE, "all reviews together")
        self._latest: LRUCache[Key, tuple[Decimal, dict[str, object]]] = LRUCache(MAX_RECURRENCES)

    def __call__(self, recurrence: TrainingAttempt, progress: Progress) -> Progress:
        """The progress with the limit of a review; unchanged if none is due, or none is allowed now.

        Raises:
            OperationError: The state of the job cannot be read now.
        """
        if not is_review_due(recurrence, progress):
            return progress
        metadata = recurrence.metadata
        key = (metadata.namespace, metadata.name, metadata.uid)
        with self._lock:
            latest = self._latest.get(key)
            if latest is not None and latest[0] == evaluated_epoch(progress) and _adds(latest[1], progress):
                return progress.model_copy(update=latest[1])
            try:
                self._limit.count(metadata.namespace, f"{metadata.name}/{metadata.uid}")
            except TooManyRequestsError:
                return progress
        reviewed = self._review(recurrence, progress)
        if reviewed is not progress:
            with self._lock:
                # Only the fields of the review: the rest of a progress is large.
                fields = {name: getattr(reviewed, name) for name in REVIEWED_FIELDS}
                self._latest[key] = evaluated_epoch(reviewed), fields
        return reviewed


def _adds(fields: Mapping[str, object], progress: Progress) -> bool:
    """Whether a kept review has something that this progress lacks.

    The cost of an epoch may become known after the final metric was predicted from the same evaluation.
    """
    return any(value is not None and getattr(progress, name) != value for name, value in fields.items())
