"""What a training has done so far: its epochs, its samples, and its metric against the target."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wattloop.printable import ascii_text
from wattloop.wire.training_messages import MAX_FAILURE_CHARACTERS, MAX_NUMBER

if TYPE_CHECKING:
    from wattloop.wire.environment import RunTarget


class TrainingProgress:
    """The progress of one process, from its steps, its epochs and its evaluations.

    Args:
        target: When the training has reached its target; None: never.

    Attributes:
        loop_ended: Whether the loop of epochs has ended; a later evaluation belongs to no further epoch.
        metric: The last finite value of the metric, within the range of a report; None before the first.
        diverged: Whether the last value was NaN or an infinity.
        consecutive_reached: Number of the last evaluations that all reached the threshold.
        reached: Whether enough consecutive evaluations have reached the threshold, whatever came later.

    Example:
        >>> progress = TrainingProgress(None)
        >>> progress.step(500.0)
        >>> progress.evaluate(0.9)
        >>> progress.epochs, progress.samples_per_epoch
        (1, 500.0)
    """

    def __init__(self, target: RunTarget | None) -> None:
        self._target = target
        self._samples = 0.0
        self._samples_of_complete_epochs = 0.0
        self._evaluated_epochs = 0
        self.completed_epochs = 0
        self.loop_ended = False
        self.metric: float | None = None
        self.diverged = False
        self.evaluations = 0
        self.consecutive_reached = 0
        self.reached = False

    @property
    def epochs(self) -> int:
        """Number of epochs that are complete, or whose evaluation was reported before their end."""
        return max(self.completed_epochs, self._evaluated_epochs)

    @property
    def samples_per_epoch(self) -> float:
        """Mean number of samples of a complete epoch; 0 before the first."""
        return self._samples_of_complete_epochs / max(self.epochs, 1)

    def step(self, samples: float) -> None:
        """Count the samples of an optimizer step."""
        self._samples += samples

    def evaluate(self, value: float) -> None:
        """Count an evaluation: of the epoch that runs, or after the loop, of the last one.

        Args:
            value: The metric. A huge one counts as the largest number that a report can carry.
        """
        self.diverged = not math.isfinite(value)
        if not self.diverged:
            self.metric = min(max(value, -MAX_NUMBER), MAX_NUMBER)
        self.evaluations += 1
        target = self._target
        if target is not None:
            reaches = not self.diverged and self.metric is not None and target.reached_by(self.metric)
            self.consecutive_reached = self.consecutive_reached + 1 if reaches else 0
            self.reached |= self.consecutive_reached >= target.consecutive_evaluations
        self._evaluated_epochs = self.completed_epochs + (0 if self.loop_ended else 1)
        self._samples_of_complete_epochs = self._samples

    def complete_epoch(self) -> bool:
        """Count a completed epoch; returns whether no evaluation of it was reported."""
        self.completed_epochs += 1
        is_new = self._evaluated_epochs < self.completed_epochs
        if is_new:
            self._samples_of_complete_epochs = self._samples
        return is_new


MAX_CHAIN = 8
MAX_TEXT_CHARACTERS = 4000
# Handlers of signals raise the latter two.
OUTSIDE_ERRORS = (ConnectionError, SystemExit, KeyboardInterrupt)
# PyTorch's exceptions of collective operations, stores and sockets, and of signals in its launcher and Lightning.
PEER_ERRORS = frozenset(
    {"DistBackendError", "DistNetworkError", "DistStoreError", "SignalException", "SIGTERMException"}
)
# What gloo, NCCL and their sockets say in a RuntimeError.
PEER_TEXTS = ("closed by peer", "reset by peer", "broken pipe", "gloo/transport", "nccl", "processgroup")


def failure_name(error: BaseException) -> str:
    """Name of an exception's type, in printable ASCII.

    Example:
        >>> failure_name(ValueError("x"))
        'ValueError'
    """
    return ascii_text(type(error).__name__, MAX_FAILURE_CHARACTERS) or "Exception"


def is_consequence(error: BaseException) -> bool:
    """Whether an exception follows from another process: a lost connection to it, or a signal of the launcher.

    When a process of a distributed training dies, the others fail in their next collective operation. PyTorch has
    exceptions of their own for some of these failures, and a RuntimeError for others, which only its text tells.
    The launcher ends the others by a signal, for which a script may have a handler that raises.

    Example:
        >>> is_consequence(RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4321"))
        True
        >>> is_consequence(RuntimeError("CUDA out of memory")), is_consequence(ConnectionResetError())
        (False, True)
    """
    current: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if current is None:
            return False
        if isinstance(current, OUTSIDE_ERRORS) or type(current).__name__ in PEER_ERRORS:
            return True
        if isinstance(current, RuntimeError):
            text = " ".join(each for each in current.args if isinstance(each, str))[:MAX_TEXT_CHARACTERS].lower()
            if any(each in text for each in PEER_TEXTS):
                return True
        current = current.__cause__ or current.__context__
    return False
