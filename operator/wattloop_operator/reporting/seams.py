"""What the reporting API needs from where it runs: who a token is, and where progress is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wattloop_operator.api.progress import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence

Review = Callable[[TrainingRecurrence, Progress], Progress]
"""The policy's second thought: the progress with a new bound, or as it was where the job's state is not at hand."""


class UnknownCallerError(Exception):
    """The token is missing, expired, forged or for another audience: answered with 401."""


class ForeignRecurrenceError(Exception):
    """The caller is known, but the recurrence is not its own: answered with 403."""


class Gate(Protocol):
    """Knows who may speak of which recurrence."""

    def admit(self, token: str, namespace: str, name: str) -> None:
        """Let a caller pass.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            ForeignRecurrenceError: The caller does not run this recurrence.
            CannotError: It could not be found out now.
        """
        ...


class ProgressBook(Protocol):
    """Keeps the progress of recurrences, durably when `write` returns."""

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """The recurrence as it is now; None where there is none.

        Raises:
            CannotError: It could not be read now.
        """
        ...

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """Write the progress of a recurrence that is still as it was read.

        Raises:
            ChangedError: It has changed since: read it again, take the report in again.
            CannotError: It could not be written now.
        """
        ...
