"""Whether a run goes on: by its target, by the operator's answers, and with several ranks by their common verdict."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from wattloop.run.verdicts import RankVerdicts, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from wattloop.run.training_progress import TrainingProgress
    from wattloop.wire.training_messages import Answer, Report

logger = logging.getLogger("wattloop")


class StopDecision:
    """Collects what may end a run. With several ranks only their verdict does, after the same epoch for all.

    Args:
        recurrence: Name of the recurrence, for the log.
        progress: The progress of this process.
        verdicts: The verdicts of several ranks; None if this process alone decides when it ends.

    Attributes:
        stop_reason: Why the operator stopped the run; empty if it did not.
        reach_confirmed: Whether the operator has answered that the target is reached.
        agreed_epochs: Number of epochs, or of evaluations outside a loop of epochs, on which the ranks have agreed.
    """

    def __init__(self, recurrence: str, progress: TrainingProgress, verdicts: RankVerdicts | None) -> None:
        self._recurrence = recurrence
        self._progress = progress
        self._verdicts = verdicts
        self._verdict = Verdict()
        self._requested_stop = ""
        self.stop_reason = ""
        self.reach_confirmed = False
        self.agreed_epochs = 0

    @property
    def reached(self) -> bool:
        """Whether the run has reached its target."""
        return self._progress.reached if self._verdicts is None else self._verdict.stop and self._verdict.reached

    @property
    def stopped(self) -> bool:
        """Whether the operator stopped the run before its target."""
        return bool(self.stop_reason) if self._verdicts is None else self._verdict.stop and not self._verdict.reached

    def answered(self, answer: Answer | None) -> None:
        """Apply an answer of the operator; None if there was none."""
        self.reach_confirmed |= answer is not None and answer.reached
        if answer is None or not answer.stop or self.stopped:
            return
        reason = answer.reason or "stopped by the operator"
        if self._verdicts is None:
            self._stop(reason)
        else:
            self._requested_stop = reason

    def agree(self, question: Callable[[int, int], Report], *, is_last: bool) -> Answer | None:
        """Agree with the other ranks whether to go on after the next epoch that all have completed.

        Args:
            question: Makes the report that asks the operator for the verdict on an epoch and some further ones.
            is_last: Whether the run ends after this epoch in any case.

        Returns:
            The operator's latest answer to such a question; None with one rank, or if they have agreed to end.
        """
        if self._verdicts is None or self._verdict.stop:
            return None
        self.agreed_epochs += 1
        reached = self._progress.reached
        own = Verdict(reached or bool(self._requested_stop), reached, self._requested_stop)
        self._verdict = self._verdicts.after(self.agreed_epochs, own, question, is_last=is_last)
        if self.stopped:
            self._stop(self._verdict.reason)
        return self._verdicts.latest_answer

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        logger.warning("%s: stopping: %s", self._recurrence, reason)
