"""Prior distributions of epochs, epoch costs, noise and savings, as numbers: `kernel` has their moments at the arms.

The numbers are rounded maximum-likelihood fits over measured arms. docs/internals/bandit.md lists the data and
the stability of the fits. This module needs no NumPy: the operator's costs use it.
"""

from dataclasses import dataclass

# Epochs take at least this share of an attempt's cost: an expected start may exceed the cost of a short attempt, and a
# start that is not known may be the rest.
MIN_EPOCHS_SHARE = 0.05


@dataclass(frozen=True)
class ParameterPrior:
    """The effect of a further parameter on h, over its coordinate u, which is 0 for the default.

    A number adds ``slope·u + curvature·u²/2 + interaction·x·u + m(u) − m(0)``. Slope, curvature and
    interaction are Gaussian; ``m`` is a Matérn-5/2 process over u that varies slowly with x. A choice adds
    ``offset + interaction·x``, independently for each candidate except the default. So the prior of the
    arms with the default values is that of batch sizes alone.

    Attributes:
        slope_sd: Standard deviation of the slope, per unit.
        curvature_sd: Standard deviation of the curvature.
        interaction_sd: Standard deviation of the interaction, per octave of batch size and unit.
        matern_sd: Standard deviation of the part of ``m`` that is equal for all batch sizes.
        joint_sd: Standard deviation of the part that varies with the batch size.
        choice_sd: Standard deviation of the offset of a choice.
    """

    slope_sd: float
    curvature: float
    curvature_sd: float
    interaction_sd: float
    matern_sd: float
    joint_sd: float
    matern_units: float
    choice_sd: float


@dataclass(frozen=True)
class EpochShapes:
    """Shapes of the epochs to the target over the batch size: a grid of equally likely pairs of B_c and B_s.

    The epochs of a batch size b are modelled as a·(1 + b/B_c)·(1 + B_s/b). Beyond the critical batch size B_c,
    larger batches need as many steps and so more epochs (McCandlish, Kaplan and Amodei 2018, "An empirical model
    of large-batch training"). Below B_s, the noise of small batches makes steps useless, and the epochs rise
    again. Which of the two limits a job meets is unknown, so each pair on a grid is a hypothesis.

    Attributes:
        critical_octaves: Least and largest log2(B_c / default), in whole octaves.
        small_octaves: Least and largest log2(B_s / default), in whole octaves.
    """

    critical_octaves: tuple[int, int]
    small_octaves: tuple[int, int]


@dataclass(frozen=True)
class SmoothPrior:
    """A Gaussian process over x = log2(batch size / default), in octaves.

    ``h(x) = level + shape(x) + slope·x + curvature·x²/2 + matern(x) + own(x)``. The shape is one of several,
    all equally likely. Level, slope and curvature are Gaussian, ``matern`` is a Matérn-5/2 process, and ``own``
    is independent between arms. Each further parameter adds its `ParameterPrior`.

    Attributes:
        level_sd: Standard deviation of the level; large for an unknown level.
        slope_sd: Standard deviation of the slope.
        curvature_sd: Standard deviation of the curvature.
        matern_sd: Standard deviation of the Matérn process.
        own_sd: Standard deviation of ``own``.
        shapes: The shapes; None: the shape is 0.
    """

    level_sd: float
    slope: float
    slope_sd: float
    curvature: float
    curvature_sd: float
    matern_sd: float
    matern_octaves: float
    own_sd: float
    parameter: ParameterPrior
    shapes: EpochShapes | None = None


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
class LogRatio:
    """Gaussian of the log of a ratio of costs."""

    mean: float
    sd: float


def best_limit_prior(eta: float, utilisation: float) -> LogRatio:
    """The cost at the best power limit relative to the cost without a limit, before any limit was measured.

    log (cost at the best limit / cost without a limit) = -0.034 - 0.31 u η³, where u is the mean power of the GPUs
    without a limit as a share of their maximum. It is a least-squares fit to 75 measured pairs of a training and a
    batch size on A40 and V100 GPUs (traces of Zeus, NSDI '23) at five values of η. A training whose GPUs idle has
    little to save, and a limit costs time, which counts more with a smaller η. The residuals have a standard
    deviation of 4.5 % at η = 0 and of 8 % at η = 1.

    Args:
        eta: Weight of energy against time in the cost, 0 to 1.
        utilisation: Mean power without a limit as a share of the maximum power, 0 to 1.

    Example:
        >>> round(best_limit_prior(1.0, 0.9).mean, 3), best_limit_prior(0.0, 0.9).mean
        (-0.313, -0.034)
    """
    share = eta**3
    return LogRatio(-0.034 - 0.31 * min(max(utilisation, 0.0), 1.0) * share, 0.045 + 0.035 * share)
