"""Whether a run goes on after an epoch: the same verdict for all ranks, which wait for each other in every step.

Where PyTorch has a process group, rank 0 publishes the verdict in the group's store. Otherwise each rank asks the
operator, which decides when rank 0 asks. Every wait is bounded, and without a verdict a rank goes on.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from wattloop.wire.torch_group import LostStoreError, TorchGroup, torch_group
from wattloop.wire.training_messages import Answer, Report

if TYPE_CHECKING:
    # It loads an HTTP client.
    from wattloop.run.report_channel import ReportChannel
    from wattloop.run.training_progress import TrainingProgress

logger = logging.getLogger("wattloop")

# As long as PyTorch's own longest timeout of a collective operation: rank 0 may evaluate for long.
RANK_0_TIMEOUT_SECONDS = 1800.0
# An operator that restarts is away for less. After a failure, each epoch waits only briefly until the
# operator answers again.
OPERATOR_TIMEOUT_SECONDS = 60.0
LATER_TIMEOUT_SECONDS = 5.0
# How long rank 0 keeps the store of the process group for the others before it ends.
CONFIRMATION_TIMEOUT_SECONDS = 30.0
UNDECIDED_PAUSE_SECONDS = 0.5
# One verdict covers the epochs of this time, so that the operator writes at most about once a second, and
# the requests of all ranks stay within its rate limit of 50 per second.
MIN_VERDICT_SECONDS = 1.0
RANKS_PER_SECOND = 25
_run_numbers = itertools.count()


@dataclass(frozen=True)
class Verdict:
    """Whether to go on after an epoch."""

    stop: bool = False
    reached: bool = False
    reason: str = ""


class RankVerdicts:
    """The verdicts of one run of several ranks.

    Attributes:
        name: Beginning of the names of this run's values in the store of the process group.
        latest_answer: The operator's latest answer to a question for a verdict.
    """

    def __init__(
        self,
        channel: ReportChannel,
        rank: int,
        ranks: int,
        *,
        group: Callable[[], TorchGroup | None] = torch_group,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._channel = channel
        self._rank = rank
        self._verdict_seconds = max(MIN_VERDICT_SECONDS, ranks / RANKS_PER_SECOND)
        self.group = group
        self._clock = clock
        self._sleep = sleep
        # Each rank of a group creates as many runs.
        self.name = f"wattloop/{next(_run_numbers)}"
        self.latest_answer = Answer()
        self._decided_epoch = 0
        self._has_answered = True
        self._asked = (0, clock())

    @property
    def asks_operator(self) -> bool:
        """Whether each rank asks the operator, and not rank 0 for all."""
        return self.group() is None and self._channel.has_url

    def after(
        self, epoch: int, own: Verdict, report: Callable[[int, int], Report], *, is_last: bool = False
    ) -> Verdict:
        """The verdict on an epoch.

        Args:
            epoch: Number of epochs that all ranks have completed.
            own: The verdict as far as this process knows, which counts for rank 0 without an operator.
            report: Makes the report that asks for the verdict on an epoch and a number of further ones.
            is_last: Whether the run ends after this epoch in any case.
        """
        group = self.group()
        if group is not None:
            return self._from_group(group, epoch, own, is_last=is_last)
        if not self._channel.has_url:
            return own
        return Verdict() if epoch <= self._decided_epoch else self._from_operator(epoch, report)

    def _from_group(self, group: TorchGroup, epoch: int, own: Verdict, *, is_last: bool) -> Verdict:
        name = f"{self.name}/verdict/{epoch}"
        if self._rank == 0:
            if group.publish(name, json.dumps(asdict(own))) and (own.stop or is_last):
                # The store may end with this process.
                group.await_confirmations(f"{name}/read", CONFIRMATION_TIMEOUT_SECONDS)
            return own
        try:
            text = group.awaited_value(name, RANK_0_TIMEOUT_SECONDS)
        except LostStoreError as error:
            logger.warning("rank 0 is gone, so there is no verdict on epoch %d (%s); continuing", epoch, error)
            return Verdict()
        if text is None:
            logger.warning("rank 0 gave no verdict on epoch %d in %.0f s; continuing", epoch, RANK_0_TIMEOUT_SECONDS)
            return Verdict()
        verdict = Verdict(**json.loads(text))
        if verdict.stop or is_last:
            group.confirm(f"{name}/read")
        return verdict

    def _from_operator(self, epoch: int, report: Callable[[int, int], Report]) -> Verdict:
        ahead = self._epochs_ahead(epoch)
        now = self._clock()
        rank_0_deadline = now + RANK_0_TIMEOUT_SECONDS
        deadline = now + (OPERATOR_TIMEOUT_SECONDS if self._has_answered else LATER_TIMEOUT_SECONDS)
        while True:
            answer = self._channel.ask(report(epoch, ahead))
            now = self._clock()
            if answer is None:
                if self._channel.rejected_permanently or now + self._channel.wait_seconds >= deadline:
                    self._has_answered = False
                    logger.warning("the operator gave no verdict on epoch %d; continuing", epoch)
                    return Verdict()
                self._sleep(self._channel.wait_seconds)
                continue
            self._has_answered, deadline = True, now + OPERATOR_TIMEOUT_SECONDS
            self.latest_answer = answer
            goes_on = answer.goes_on_after(epoch)
            if goes_on is not None:
                self._decided_epoch = answer.decided_epoch
                return Verdict(not goes_on, answer.reached, answer.reason or "stopped by the operator")
            if now >= rank_0_deadline:
                logger.warning("rank 0 did not ask for a verdict on epoch %d; continuing", epoch)
                return Verdict()
            # The operator answers after 20 s without a verdict. This bounds the requests to one that does not wait.
            self._sleep(UNDECIDED_PAUSE_SECONDS)

    def _epochs_ahead(self, epoch: int) -> int:
        """How many further epochs pass in the time that one verdict covers."""
        before, at = self._asked
        self._asked = epoch, self._clock()
        seconds = (self._asked[1] - at) / max(epoch - before, 1)
        return min(int(self._verdict_seconds / seconds), epoch) if seconds > 0 else 0


class StopDecision:
    """Collects what may end a run. With several ranks only their verdict does, after the same epoch for all.

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
