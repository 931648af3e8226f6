"""Taking in a report: admit the caller, merge what is new, answer whether to stop."""

from __future__ import annotations

import logging

from wattloop.errors import CannotError
from wattloop.messages import LONGEST_REASON, Answer, Report
from wattloop_operator.api.progress import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.engine.reports import progress_after
from wattloop_operator.loop.world import ChangedError
from wattloop_operator.reporting.seams import Gate, ProgressBook, Review
from wattloop_operator.store.readings import Readings
from wattloop_operator.store.records import EnergyReading

logger = logging.getLogger(__name__)

MOST_TRIES = 10


class UnknownRecurrenceError(Exception):
    """There is no such recurrence: answered with 404."""


class ReportService:
    """The reporting API apart from its transport.

    Args:
        book: Where progress is kept.
        gate: Who may speak of which recurrence.
        readings: Where every energy reading is kept; None where none is.
        review: The policy's second thought about an attempt, where the state of its job is at hand.
    """

    def __init__(
        self, book: ProgressBook, gate: Gate, readings: Readings | None = None, review: Review | None = None
    ) -> None:
        self._book = book
        self._gate = gate
        self._readings = readings
        self._review = review

    def take(self, token: str, namespace: str, name: str, report: Report) -> Answer:
        """Take in a report; when this returns, it is kept.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            ForeignRecurrenceError: The caller does not run this recurrence.
            UnknownRecurrenceError: There is no such recurrence.
            CannotError: It could not be kept now; the report may be sent again.
        """
        for _ in range(MOST_TRIES):
            recurrence = self.look_up(token, namespace, name)
            progress = self._reviewed(recurrence, progress_after(recurrence, report))
            try:
                if progress != recurrence.status.progress and recurrence.status.result is None:
                    self._book.write(recurrence, progress)
            except ChangedError:
                continue
            self._keep_readings(recurrence, report)
            if recurrence.status.result is not None:
                return Answer(True, f"the attempt has ended: {recurrence.status.message}"[:LONGEST_REASON])
            return Answer(progress.stop_requested, progress.stop_reason)
        raise CannotError(f"{namespace}/{name} changes faster than its report can be written; send the report again")

    def look_up(self, token: str, namespace: str, name: str) -> TrainingRecurrence:
        """The recurrence of a caller, with its decision.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            ForeignRecurrenceError: The caller does not run this recurrence.
            UnknownRecurrenceError: There is no such recurrence.
            CannotError: It could not be read now.
        """
        self._gate.admit(token, namespace, name)
        recurrence = self._book.read(namespace, name)
        if recurrence is None:
            raise UnknownRecurrenceError(f"there is no TrainingRecurrence {namespace}/{name}")
        return recurrence

    def _reviewed(self, recurrence: TrainingRecurrence, progress: Progress) -> Progress:
        if self._review is None or recurrence.status.result is not None:
            return progress
        try:
            return self._review(recurrence, progress)
        except CannotError as error:
            # The next report gives another chance; what this one says must be kept.
            logger.warning("%s: the policy cannot think again about it now: %s", _of(recurrence), error)
            return progress

    def _keep_readings(self, recurrence: TrainingRecurrence, report: Report) -> None:
        if self._readings is None:
            return
        spec = recurrence.spec
        readings = (
            EnergyReading(spec.job_ref.uid, spec.index, spec.attempt, gpu.uuid, time_seconds, energy_millijoules)
            for gpu in report.gpus
            for time_seconds, energy_millijoules in (
                (gpu.start_time_seconds, gpu.start_energy_millijoules),
                (gpu.time_seconds, gpu.energy_millijoules),
            )
        )
        try:
            self._readings.record(readings)
        except CannotError as error:
            # The outcome is made of the progress, which is kept; and a training must hear that it is to stop.
            logger.warning(
                "%s: the energy readings of a report are lost, its progress is kept: %s", _of(recurrence), error
            )


def _of(recurrence: TrainingRecurrence) -> str:
    return f"{recurrence.metadata.namespace}/{recurrence.metadata.name}"
