"""Prior distributions of epochs, epoch costs, noise and changes.

The numbers are rounded maximum-likelihood fits over measured arms. docs/bandit.md lists the data and
the stability of the fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.bandit.epoch_shapes import EpochShapes
from wattloop_planner.bandit.kernel import ParameterPrior, SmoothPrior

EPOCHS = SmoothPrior(
    2.0,
    0.0,
    0.1,
    0.0,
    0.02,
    0.3,
    1.5,
    0.05,
    ParameterPrior(0.25, 0.15, 0.05, 0.1, 0.15, 0.4, 3.0, 0.4),
    EpochShapes((-5, 8), (-9, 0)),
)
# Most parameters, such as a learning rate, do not change the cost of an epoch; a size of the model does.
EPOCH_COST = SmoothPrior(
    2.0, -0.15, 0.2, 0.07, 0.03, 0.25, 3.0, 0.025, ParameterPrior(0.03, 0.0, 0.0, 0.0, 0.03, 0.01, 3.0, 0.05)
)
# Differences: of epochs between regimes (another target), of epochs between jobs, of epoch costs
# between GPU models.
CHANGED_REGIME = SmoothPrior(
    0.7, 0.0, 0.15, 0.0, 0.03, 0.15, 1.5, 0.1, ParameterPrior(0.08, 0.0, 0.02, 0.02, 0.1, 0.05, 3.0, 0.15)
)
OTHER_JOB = SmoothPrior(
    0.5, 0.0, 0.1, 0.0, 0.02, 0.1, 1.5, 0.05, ParameterPrior(0.05, 0.0, 0.02, 0.02, 0.1, 0.05, 3.0, 0.15)
)
OTHER_GPU = SmoothPrior(
    1.5, 0.0, 0.1, 0.0, 0.02, 0.1, 3.0, 0.03, ParameterPrior(0.02, 0.0, 0.0, 0.0, 0.02, 0.01, 3.0, 0.03)
)


@dataclass(frozen=True)
class ChangeDetection:
    """Detection of a change of regime by two one-sided cumulative sums (CUSUM) of standardised residuals.

    Attributes:
        allowance: Residual that adds nothing to a sum, in standard deviations.
        threshold: Sum at which older runs belong to another regime; infinity disables detection.
        max_residual: Bound of a single residual.
        head_start: Least value of both sums after the first change of the training's image or template
            (Lucas and Crosier 1982: half of the threshold). After the n-th one that no detected change
            followed, it is a n-th of this value.
    """

    allowance: float = 1.0
    threshold: float = 6.0
    max_residual: float = 4.0
    head_start: float = 3.0
