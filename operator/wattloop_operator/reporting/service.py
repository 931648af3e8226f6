"""Taking in a report: admit the caller, merge what is new, answer whether to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from wattloop.errors import OperationError
from wattloop.messages import MAX_REASON_CHARACTERS, Answer, Report
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.attempt.progress import max_gpus, progress_after
from wattloop_operator.reporting.interfaces import (
    Authorizer,
    BearerToken,
    ProgressStore,
    Review,
    UnknownRecurrenceError,
)
from wattloop_operator.reporting.limits import ReportLimits
from wattloop_operator.reporting.progress_writer import ProgressWriter
from wattloop_operator.reporting.rate_limiters import Rate, TokenBuckets

MAX_SAID = 1_000

logger = logging.getLogger(__name__)


class ReportService:
    """The reporting API apart from its transport.

    Args:
        progress_store: Where progress is kept.
        authorizer: Who may speak of which recurrence.
        review: The policy's second thought about an attempt, where the state of its job is at hand.
        limits: The limits of reports; None: the defaults.
        clock: Monotonic seconds.
        write_interval_seconds: The shortest time between two writes of one recurrence's progress.

    Attributes:
        limits: The limits of reports.
        writer: Merges reports and writes progress.
    """

    def __init__(
        self,
        progress_store: ProgressStore,
        authorizer: Authorizer,
        review: Review | None = None,
        *,
        limits: ReportLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        write_interval_seconds: float = 0.0,
    ) -> None:
        self._progress_store = progress_store
        self._authorizer = authorizer
        self._review = review
        # A line an hour and recurrence, whatever it reports.
        self._said: TokenBuckets[str] = TokenBuckets(Rate(1 / 3600, 1.0), clock, MAX_SAID)
        self.limits = limits or ReportLimits(clock)
        self.writer = ProgressWriter(progress_store, self._merged, clock, write_interval_seconds)

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> None:
        """Let a caller report for a recurrence, before the report is read.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            RecurrenceOwnershipError: The caller does not run this recurrence.
            TooManyRequestsError: There were too many reports of the recurrence, or unknown tokens.
            OperationError: It could not be found out now.
        """
        self._authorizer.authorize(token, namespace, name, address)
        self.limits.count_report(namespace, name)

    def take(self, namespace: str, name: str, report: Report) -> Answer:
        """Take in a report of a caller that was admitted.

        Raises:
            UnknownRecurrenceError: There is no such recurrence.
            TooManyRequestsError: Too many reports of this recurrence wait to be written.
            OperationError: It could not be kept now; the report may be sent again.
        """
        status = self.writer.take(namespace, name, report).status
        if status.result is not None:
            return Answer(True, f"the attempt has ended: {status.message}"[:MAX_REASON_CHARACTERS])
        progress = status.progress or Progress()
        return Answer(progress.stop_requested, progress.stop_reason)

    def look_up(self, namespace: str, name: str) -> TrainingRecurrence:
        """The recurrence of a caller that was admitted, with its decision.

        Raises:
            UnknownRecurrenceError: There is no such recurrence.
            OperationError: It could not be read now.
        """
        recurrence = self._progress_store.read(namespace, name)
        if recurrence is None:
            raise UnknownRecurrenceError(f"there is no TrainingRecurrence {namespace}/{name}")
        return recurrence

    def _merged(self, recurrence: TrainingRecurrence, report: Report) -> Progress:
        if recurrence.status.result is not None:
            return recurrence.status.progress or Progress()
        progress = progress_after(recurrence, report)
        self._say_what_is_left_out(recurrence, progress, report)
        if self._review is None:
            return progress
        try:
            return self._review(recurrence, progress)
        except OperationError as error:
            # The next report gives another chance; what this one says must be kept.
            logger.warning("%s: the policy cannot think again about it now: %s", _of(recurrence), error)
            return progress

    def _say_what_is_left_out(self, recurrence: TrainingRecurrence, progress: Progress, report: Report) -> None:
        kept = {gpu.uuid for gpu in progress.gpus}
        left_out = [gpu.uuid for gpu in report.gpus if gpu.uuid not in kept]
        if left_out and self._said.take(_of(recurrence)):
            logger.warning(
                "%s: GPU %s and others are left out: its template asks for %d GPUs, and at most %d are kept",
                _of(recurrence),
                left_out[0],
                recurrence.status.devices,
                max_gpus(recurrence),
            )


def _of(recurrence: TrainingRecurrence) -> str:
    return f"{recurrence.metadata.namespace}/{recurrence.metadata.name}"
