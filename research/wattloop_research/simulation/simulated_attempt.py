"""One simulated attempt: its outcome, energy, time and cost."""

import math
from dataclasses import dataclass
from enum import StrEnum

from wattloop_planner.observations import Outcome

# Tolerance in epochs, so that a stopping cost at the end of an epoch falls there despite rounding.
ROUNDING_EPOCHS = 1e-9


class Stop(StrEnum):
    """The end of an attempt that has become too expensive.

    INSIDE: exactly at the stopping cost, within an epoch.
    EPOCH_END: at the end of the epoch that exceeds the stopping cost.
    """

    INSIDE = "inside"
    EPOCH_END = "epoch-end"


@dataclass(frozen=True, slots=True)
class Epoch:
    """Energy, time and cost of one epoch, spent evenly over it."""

    energy_joules: float
    time_seconds: float
    cost_joules: float


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How an attempt ended.

    Attributes:
        epochs: Epochs run; fractional if the attempt stopped within an epoch.
    """

    outcome: Outcome
    epochs: float
    energy_joules: float
    time_seconds: float
    cost_joules: float


def run_attempt(
    *,
    target_epoch: float | None,
    max_epochs: int,
    first: Epoch,
    later: Epoch,
    stop_cost_joules: float | None,
    stop: Stop,
) -> AttemptResult:
    """Run until the target, the stopping cost or the last epoch, whichever comes first.

    Args:
        target_epoch: Epochs to the target; None: never.
        max_epochs: Maximum number of epochs.
        first: The first epoch, which may be profiled.
        later: Every other epoch.
        stop_cost_joules: Cost at which the attempt stops; None: never. An attempt that reaches the target
            at exactly this cost counts as reached.
        stop: Where a stopped attempt ends.

    Example:
        >>> epoch = Epoch(energy_joules=10.0, time_seconds=1.0, cost_joules=10.0)
        >>> run_attempt(target_epoch=4, max_epochs=9, first=epoch, later=epoch, stop_cost_joules=25, stop=Stop.INSIDE)
        AttemptResult(outcome=<Outcome.STOPPED: 'stopped'>, epochs=2.5, energy_joules=25.0, time_seconds=2.5, \
cost_joules=25.0)
    """
    reaches = target_epoch is not None and target_epoch <= max_epochs
    end = float(target_epoch) if target_epoch is not None and reaches else float(max_epochs)
    outcome = Outcome.REACHED if reaches else Outcome.EXHAUSTED
    if stop_cost_joules is not None:
        # The epochs after which the attempt has cost this much.
        stopped_after = max(stop_cost_joules, 0.0) / first.cost_joules
        if stop_cost_joules > first.cost_joules:
            stopped_after = 1.0 + (stop_cost_joules - first.cost_joules) / later.cost_joules
        if stop is Stop.EPOCH_END:
            stopped_after = float(math.ceil(stopped_after - ROUNDING_EPOCHS))
        if stopped_after < end - ROUNDING_EPOCHS:
            end, outcome = stopped_after, Outcome.STOPPED
    profiled, rest = min(end, 1.0), max(end - 1.0, 0.0)
    return AttemptResult(
        outcome,
        end,
        profiled * first.energy_joules + rest * later.energy_joules,
        profiled * first.time_seconds + rest * later.time_seconds,
        profiled * first.cost_joules + rest * later.cost_joules,
    )
