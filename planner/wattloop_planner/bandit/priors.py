"""What is expected before anything is seen: of epochs, of epoch costs, of noise, and of how things change.

The numbers are rounded maximum-likelihood fits over measured arms; docs/bandit.md says which, and how stable they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.bandit.gaussian_process import SmoothPrior

EPOCHS = SmoothPrior(2.0, 0.15, 0.3, 0.11, 0.05, 0.3, 1.5, 0.05)
EPOCH_COST = SmoothPrior(2.0, -0.15, 0.2, 0.07, 0.03, 0.25, 3.0, 0.025)
# What may differ: epochs once a regime ends (another target), epochs of another job, epoch costs of another GPU model.
CHANGED_REGIME = SmoothPrior(0.7, 0.0, 0.15, 0.0, 0.03, 0.15, 1.5, 0.1)
OTHER_JOB = SmoothPrior(0.5, 0.0, 0.1, 0.0, 0.02, 0.1, 1.5, 0.05)
OTHER_GPU = SmoothPrior(1.5, 0.0, 0.1, 0.0, 0.02, 0.1, 3.0, 0.03)


@dataclass(frozen=True)
class NoisePrior:
    """What is expected of the spread of log epochs between runs of one arm.

    Attributes:
        sd: Its guess.
        weight: Degrees of freedom that the guess is worth.
        min_sd: It is never taken to be smaller.
        heavy_tails: The mean of n runs is trusted like that of n / (1 + heavy_tails / n): a single run that is far off
            must not condemn an arm.
        outlier_probability: Probability that a run never reaches the target, whatever its arm. It counts only where
            that run is the arm's only observation.
    """

    sd: float = 0.15
    weight: float = 4.0
    min_sd: float = 0.02
    heavy_tails: float = 2.0
    outlier_probability: float = 0.08


@dataclass(frozen=True)
class ChangeDetection:
    """When the runs no longer fit what was learned: two one-sided cumulative sums of standardised surprises.

    Attributes:
        allowance: Surprise that is free of charge, in standard deviations.
        threshold: Sum at which everything older is held to be of another regime; infinite: never.
        max_surprise: One run counts no more than this.
    """

    allowance: float = 1.0
    threshold: float = 6.0
    max_surprise: float = 4.0
