"""One attempt as decisions see it: its TrainingRecurrence, and the row of the store with its progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pydantic import Field

from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.progress import Progress


@dataclass(frozen=True)
class ProgressRow:
    """The row of an attempt.

    Attributes:
        version: Rises with each change; a write names the version that it was made from.
        progress: What the attempt has reported; nothing if this version of Wattloop cannot read it.
        reported_at: When the latest report was stored; None before the first.
        outcome: The status that the attempt ends with, once that is decided; None before. It is final: no report is
            merged any more, and whoever leads writes it to the TrainingRecurrence.
    """

    version: int
    progress: Progress
    reported_at: datetime | None = None
    outcome: TrainingRecurrenceStatus | None = None


class TrainingAttempt(TrainingRecurrence):
    """A TrainingRecurrence with the row of its progress, which is no part of the object.

    Attributes:
        progress: What the attempt has reported so far; no report is a progress without any.
        progress_version: Version of the row; 0 if there is none.
        reported_at: When the latest report was stored; None before the first.
        outcome: See `ProgressRow`.
    """

    progress: Progress = Field(default=Progress(), exclude=True)
    progress_version: int = Field(default=0, exclude=True)
    reported_at: datetime | None = Field(default=None, exclude=True)
    outcome: TrainingRecurrenceStatus | None = Field(default=None, exclude=True)

    @classmethod
    def of(cls, recurrence: TrainingRecurrence, row: ProgressRow | None) -> Self:
        """The attempt of an object and its row.

        Without a row, one that runs goes on by its next reports, which are cumulative. One that has ended has of its
        progress what the object states.
        """
        if row is None:
            has_ended = recurrence.status.result is not None
            row = ProgressRow(0, _of_summary(recurrence.status.progress) if has_ended else Progress())
        return cls.model_construct(
            **{name: getattr(recurrence, name) for name in TrainingRecurrence.model_fields},
            progress=row.progress,
            progress_version=row.version,
            reported_at=row.reported_at,
            outcome=row.outcome,
        )

    @property
    def must_end(self) -> bool:
        """Whether the attempt has nothing more to do, and its script does not know.

        It has reached the target, or was asked to stop, as one that goes on after its last epoch is. An attempt that is
        just at its last epoch ends by itself.
        """
        return not self.spec.reporting.uses_client and (self.progress.reached or self.progress.stop_requested)

    @property
    def epochs(self) -> float:
        """Epochs run so far, or by its end."""
        return float(self.status.epochs or self.progress.epoch or 0)


def _of_summary(summary: ProgressSummary | None) -> Progress:
    if summary is None:
        return Progress()
    return Progress(
        epoch=summary.epoch, metric=summary.metric, curve=summary.curve, power_limit_watts=summary.power_limit_watts
    )
