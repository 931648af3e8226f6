"""Expected cost of the default configuration, with which every saving is compared, and its interval.

The log of the epochs to the target is Gaussian between runs of one configuration. Its standard deviation has the
prior of the policy's model (`NoisePrior`) and the spread of all configurations that ran several times, so that the
interval of the mean is a t-interval, also after a single run (Gelman et al., Bayesian Data Analysis, 3.2). The spread
of the cost of an epoch between runs adds to it, where it is known.

The start of a run is apart from its epochs: the first one compiles and fills caches, which later ones find.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from wattloop_planner.bandit.priors import MIN_EPOCHS_SHARE, NoisePrior
from wattloop_planner.estimate import Estimate

# Of the central 90 % interval.
UPPER_QUANTILE = 0.95
# Relative standard error of the cost of an epoch at the highest power limit, measured over seconds.
EPOCH_COST_ERROR = 0.02
DEFAULT_NOISE = NoisePrior()


@dataclass(frozen=True)
class DefaultRun:
    """One attempt with the default batch size that was not stopped.

    Attributes:
        reached: Whether it reached the target.
        epochs: Epochs it ran.
        cost_joules: Its cost at the power limits it ran with, without that of its start where that is known.
    """

    reached: bool
    epochs: float
    cost_joules: float


@dataclass(frozen=True)
class Spread:
    """The spread of a logarithm between runs of one configuration, pooled over configurations.

    Attributes:
        squares: Sum of the squared deviations from the mean of each configuration.
        degrees_of_freedom: Number of runs less the number of configurations that ran.
    """

    squares: float = 0.0
    degrees_of_freedom: int = 0


NO_SPREAD = Spread()
NO_START_UP = Estimate(0.0, 0.0, 0.0)


def pooled_spread(values_by_configuration: Iterable[Sequence[float]]) -> Spread:
    """The spread of the log of a quantity, such as the epochs to the target.

    Args:
        values_by_configuration: The quantity in the runs of each configuration; all positive.

    Example:
        >>> pooled_spread([[10.0, 10.0, 10.0], [20.0]])
        Spread(squares=0.0, degrees_of_freedom=2)
    """
    squares, freedom = 0.0, 0
    for values in values_by_configuration:
        logs = [math.log(each) for each in values]
        if logs:
            middle = fmean(logs)
            squares += sum((each - middle) ** 2 for each in logs)
            freedom += len(logs) - 1
    return Spread(squares, freedom)


def default_cost_joules(
    runs: Iterable[DefaultRun],
    epoch_cost_at_highest_limit_joules: float | None,
    start_up_joules: Estimate = NO_START_UP,
    spread: Spread = NO_SPREAD,
    epoch_cost_spread: Spread = NO_SPREAD,
    *,
    hides_start: bool = False,
) -> Estimate | None:
    """Expected cost of one recurrence in the default configuration.

    The default configuration runs the default batch size at the highest power limit, without a
    stopping cost, and retries until the target is reached.

    Args:
        runs: Attempts with the default batch size that reached the target or ran out of epochs.
        epoch_cost_at_highest_limit_joules: Measured cost of one epoch of the default batch size at the
            highest limit. None: the runs' own costs are used.
        start_up_joules: Expected cost of the start of an attempt, which the cost of the runs and epochs lacks.
        spread: The spread of the epochs between runs.
        epoch_cost_spread: The spread of the cost of an epoch between runs.
        hides_start: Whether the costs of the runs contain a start that is not known, which later runs may not have. It
            counts only without a measured cost of an epoch.

    Returns:
        Joules, retries included; None if no run reached the target.

    Example:
        >>> default_cost_joules([DefaultRun(True, 10, 900.0), DefaultRun(False, 20, 1800.0)], 100.0).value
        3000.0
    """
    known = list(runs)
    reached = sum(run.reached for run in known)
    if not reached:
        return None
    if epoch_cost_at_highest_limit_joules is None:
        of_epochs, error = sum(run.cost_joules for run in known), 0.0
    else:
        of_epochs, error = epoch_cost_at_highest_limit_joules * sum(run.epochs for run in known), EPOCH_COST_ERROR
    width = math.exp(_log_half_width(len(known), reached, spread, epoch_cost_spread, error))
    value, low, high = (
        (of_epochs + len(known) * start_up) / reached
        for start_up in (start_up_joules.value, start_up_joules.low, start_up_joules.high)
    )
    if hides_start and epoch_cost_at_highest_limit_joules is None:
        low *= MIN_EPOCHS_SHARE
    return Estimate(value, low / width, high * width)


def _log_half_width(runs: int, reached: int, spread: Spread, epoch_cost_spread: Spread, error: float) -> float:
    """Half of the width of the interval of the log cost."""
    from scipy.special import stdtrit  # noqa: PLC0415 - an operator without such runs needs no SciPy

    prior = DEFAULT_NOISE
    freedom = prior.weight + spread.degrees_of_freedom
    variance = max((prior.weight * prior.sd**2 + spread.squares) / freedom, prior.min_sd**2)
    if epoch_cost_spread.degrees_of_freedom:
        variance += epoch_cost_spread.squares / epoch_cost_spread.degrees_of_freedom
    # The attempts until one reaches the target are geometric: the variance of the log of their mean.
    retries = (1 - reached / runs) / reached
    return float(stdtrit(freedom, UPPER_QUANTILE)) * math.sqrt(variance / reached + retries + error**2)
