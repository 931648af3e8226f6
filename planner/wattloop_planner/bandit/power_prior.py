"""What the best power limit is expected to save before any was measured.

log (cost at the best limit / cost without a limit) = -0.034 - 0.31 u η³, where u is the mean power of the GPUs without
a limit as a share of their maximum. It is a least-squares fit to 75 measured pairs of a training and a batch size on
A40 and V100 GPUs (traces of Zeus, NSDI '23) at five values of η. A training whose GPUs idle has little to save, and a
limit costs time, which counts more with a smaller η. The residuals have a standard deviation of 4.5 % at η = 0 and of
8 % at η = 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogRatio:
    """Gaussian of the log of a ratio of costs.

    Attributes:
        mean: Its mean.
        sd: Its standard deviation.
    """

    mean: float
    sd: float


def best_limit_prior(eta: float, utilisation: float) -> LogRatio:
    """The cost at the best power limit relative to the cost without a limit.

    Args:
        eta: Weight of energy against time in the cost, 0 to 1.
        utilisation: Mean power without a limit as a share of the maximum power, 0 to 1.

    Example:
        >>> round(best_limit_prior(1.0, 0.9).mean, 3), best_limit_prior(0.0, 0.9).mean
        (-0.313, -0.034)
    """
    share = eta**3
    return LogRatio(-0.034 - 0.31 * min(max(utilisation, 0.0), 1.0) * share, 0.045 + 0.035 * share)
