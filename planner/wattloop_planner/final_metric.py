"""Prediction of the best metric that an attempt will have after all its epochs, and when it is at its plateau.

A curve alone does not say whether it will rise again: a learning rate that drops late lifts a curve that
was flat for most of its epochs. So a prediction needs a whole run of the same training as its reference,
which had the same number of epochs and missed the target. It shows how much a run still gains after each
epoch. The attempt is predicted to gain as much as the references did after as many epochs; one that is
behind them gains at most up to their end by its own pace, which is that of a curve that rises with the
logarithm of its epochs.

The error has Student's t distribution with few degrees of freedom. Its scale grows with the range of the
metric, the epochs left and the predicted gain, and includes the noise between evaluations. The constants
are calibrated on measured curves; `benchmarks/plateaus.py` measures how many attempts that are ended would
have reached their target.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median

from wattloop.wire.environment import RunTarget
from wattloop_planner.metric_curve import MetricCurve

# Evaluations of an attempt, and of a reference, below which nothing is predicted.
MIN_EVALUATIONS = 8
# Scale of the error at the first epoch, as a part of the range of the metric over a run.
RANGE_SHARE = 0.01
# Scale of the error as a part of the predicted gain.
GAIN_SHARE = 0.4
DEGREES_OF_FREEDOM = 3.0
# Part of the epochs that counts as left at the least: the last evaluations of a run may jump.
MIN_LEFT = 0.3
# An attempt ends if it reaches the target with a lower probability.
MAX_REACH_PROBABILITY = 0.01
# At a plateau, the latter half of the epochs has gained at most this part of the range.
MAX_RECENT_SHARE = 0.1
# Scale of the difference between the final metrics of two batch sizes, as a part of the range of the metric.
SIZE_SHARE = 0.03
# A prediction from a metric whose range is not this many times its noise ends no attempt.
MIN_RANGE_TO_NOISE = 6.0
# At a plateau, this multiple of the gain of any reference and of the own pace does not suffice.
SAFETY_FACTOR = 2.0
# Standard deviation of normal noise, as a multiple of the median absolute difference of two evaluations.
NOISE_OF_DIFFERENCE = 1 / (0.6745 * math.sqrt(2))
INTERVAL = 0.9


@dataclass(frozen=True)
class FinalMetric:
    """The best metric that an attempt is predicted to have after all its epochs.

    Attributes:
        low: Lower end of its central 90 % interval.
        reach_probability: Probability that the attempt reaches its target.
        is_plateau: Whether the attempt is at its plateau, below the target: it need not go on.
    """

    metric: float
    low: float
    high: float
    reach_probability: float
    is_plateau: bool


class Levels:
    """The running best of a curve, as levels of which higher ones are better.

    Args:
        curve: At least one evaluation.
        sign: 1 if a higher metric is better, else -1.
    """

    def __init__(self, curve: MetricCurve, sign: float) -> None:
        self.epochs = curve.epochs
        self.values = [sign * metric for metric in curve.metrics]
        self.best = list(accumulate(self.values, max))

    @property
    def final(self) -> float:
        """The best level."""
        return self.best[-1]

    @property
    def range(self) -> float:
        """The improvement over the first evaluation."""
        return self.best[-1] - self.values[0]

    @property
    def noise(self) -> float:
        """Standard deviation of an evaluation, from the differences of consecutive ones in the latter half."""
        half = self.values[len(self.values) // 2 :]
        differences = [abs(other - one) for one, other in pairwise(half)]
        return NOISE_OF_DIFFERENCE * median(differences) if differences else 0.0

    def at(self, epochs: float) -> float:
        """The running best after these epochs; the first value before the first evaluation."""
        known = sum(each <= epochs for each in self.epochs)
        return self.best[max(known - 1, 0)]

    def gain_after(self, epochs: float) -> float:
        """The improvement after these epochs."""
        return self.final - self.at(epochs)


def predict_final_metric(
    curve: MetricCurve, epochs: float, target: RunTarget, max_epochs: int, references: Sequence[MetricCurve]
) -> FinalMetric | None:
    """Predict the final metric of a running attempt.

    Args:
        curve: Its evaluations so far.
        epochs: Epochs run so far.
        target: Its target.
        max_epochs: Epochs after which it ends.
        references: The curves of whole runs of the same training, with as many epochs, that missed the target.

    Returns:
        None without enough evaluations, and without a reference.
    """
    sign = 1.0 if target.maximize else -1.0
    own = Levels(curve, sign)
    known = [Levels(each, sign) for each in references if len(each.epochs) >= MIN_EVALUATIONS]
    if len(own.epochs) < MIN_EVALUATIONS or not known or epochs >= max_epochs:
        return None
    best, threshold = own.final, sign * target.threshold
    gains = [each.gain_after(epochs) for each in known]
    recent = best - own.at(epochs / 2)
    pace = recent * math.log2(max_epochs / epochs)
    final = fmean(each.final for each in known)
    gain = max(fmean(gains), min(pace, final - best))
    span = max(own.range, *(each.range for each in known))
    noise = max(own.noise, *(each.noise for each in known))
    left = max(1 - epochs / max_epochs, MIN_LEFT)
    scale = math.sqrt((RANGE_SHARE * span) ** 2 * left + (GAIN_SHARE * gain) ** 2 + noise**2)
    if scale <= 0:
        return None
    metric = best + gain
    reach_probability = _probability_below((metric - threshold) / scale)
    half_width = scale * _quantile((1 + INTERVAL) / 2)
    low, high = max(metric - half_width, best), metric + half_width
    is_plateau = (
        reach_probability < MAX_REACH_PROBABILITY
        and recent <= MAX_RECENT_SHARE * own.range
        and own.range >= MIN_RANGE_TO_NOISE * noise
        and best + SAFETY_FACTOR * max(pace, *gains) < threshold
    )
    low, high = sorted((sign * low, sign * high))
    return FinalMetric(sign * metric, low, high, reach_probability, is_plateau)


def other_size_reaches(target: RunTarget, whole_runs: Sequence[MetricCurve]) -> float | None:
    """Probability that a run with another batch size reaches a target that these whole runs missed.

    None if that is not known, because a run was not at its plateau at its end or had too few evaluations.
    """
    sign = 1.0 if target.maximize else -1.0
    known = [Levels(each, sign) for each in whole_runs if len(each.epochs) >= MIN_EVALUATIONS]
    if not known:
        return None
    spans = [each.range for each in known]
    gains = [each.gain_after(each.epochs[-1] / 2) for each in known]
    if any(gain > MAX_RECENT_SHARE * span for gain, span in zip(gains, spans, strict=True)):
        return None
    best, span, noise = max(each.final for each in known), max(spans), max(each.noise for each in known)
    scale = math.hypot(SIZE_SHARE * span, noise)
    if span < MIN_RANGE_TO_NOISE * noise or scale <= 0:
        return None
    return _probability_below((best - sign * target.threshold) / scale)


def _probability_below(deviation: float) -> float:
    """Probability that the error is below this multiple of its scale."""
    from scipy.special import stdtr  # noqa: PLC0415 - an operator without such attempts needs no SciPy

    return float(stdtr(DEGREES_OF_FREEDOM, deviation))


def _quantile(probability: float) -> float:
    """Multiple of its scale below which the error is with this probability."""
    from scipy.special import stdtrit  # noqa: PLC0415 - as above

    return float(stdtrit(DEGREES_OF_FREEDOM, probability))
