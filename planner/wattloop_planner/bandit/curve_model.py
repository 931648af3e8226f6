"""Prediction of an attempt's epochs to the target from its curve so far, by time warping (docs/internals/bandit.md).

The spread of the predictions is learned per job, as a function of the predicted fraction of the run that has been
seen: each complete run is predicted from those of other batch sizes before it becomes a reference (prequential errors).
Swersky, Snoek and Adams (2014), "Freeze-thaw Bayesian optimization", treat the same question with a parametric family.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from wattloop_planner.bandit.gaussian_process import Matrix, moments_beyond
from wattloop_planner.metric_curve import MetricCurve

# Complete runs of an arm that serve as references: the latest of its 1st, 2nd, 4th, 8th, … run.
REFERENCES_PER_ARM = 2
# Nearest arms that serve as references.
REFERENCE_ARMS = 5
# Runs of an arm whose prediction errors are learned: later ones add little and take time.
ASSESSED_PER_ARM = 2
# Distance at which the weight of a reference is half that of one at the same batch size.
HALF_WEIGHT_OCTAVES = 1.0
# Fractions of a run at which predictions are assessed; nodes of the learned spread.
FRACTIONS = (0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.8)
LOG_FRACTIONS = tuple(math.log(each) for each in FRACTIONS)
# Prior of the spread at these fractions: wide, and as strong as this number of assessed runs.
PRIOR_SD = (1.2, 0.9, 0.65, 0.45, 0.37, 0.3, 0.22)
PRIOR_WEIGHT = 3.0
MAX_ERROR = 2.0
ROUNDING = 1e-9

# Probability that a curve says nothing about the epochs, and the standard deviation of the predictions then.
WORTHLESS_PROBABILITY = 0.1
WORTHLESS_SD = 1.5

_Records = tuple[list[float], list[float]]


class CurvePrediction(NamedTuple):
    """Predicted log epochs of an attempt to the target, and the standard deviation of the prediction."""

    log_epochs: float
    sd: float


@dataclass(frozen=True)
class _Reference:
    """A complete run: its curve and the epochs after which it reached the target."""

    curve: MetricCurve
    epochs: float
    sign: float

    @cached_property
    def records(self) -> _Records:
        """The running best."""
        return _records(self.curve, self.epochs, self.sign)

    def log_epochs_of(self, level: float, log_reached: float, log_now: float) -> float:
        """Log epochs of an attempt to the target, predicted by this reference.

        Args:
            level: Running best of the attempt.
            log_reached: Log of the epochs after which it reached this level.
            log_now: Log of the epochs run so far; the attempt has not exceeded the level until now.
        """
        log_epochs, levels = self.records
        log_total = math.log(self.epochs)
        if not levels:
            return log_total
        beyond = bisect_right(levels, level)
        if beyond == len(levels):
            # The reference never exceeded this level; it reached it, at the latest, at its end.
            below = min(bisect_left(levels, level), beyond - 1)
            return log_total + log_reached - log_epochs[below]
        next_reached = log_epochs[beyond]
        at_level = next_reached
        if beyond:
            share = (level - levels[beyond - 1]) / (levels[beyond] - levels[beyond - 1])
            at_level = log_epochs[beyond - 1] + share * (next_reached - log_epochs[beyond - 1])
        return log_total + max(log_reached - at_level, log_now - next_reached)


def _records(curve: MetricCurve, epochs: float, sign: float) -> _Records:
    """Log epochs and levels of the evaluations up to `epochs` that improved the running best."""
    log_epochs: list[float] = []
    levels: list[float] = []
    best = -math.inf
    limit = epochs * (1 + ROUNDING)
    for at, metric in zip(curve.epochs, curve.metrics, strict=True):
        if at > limit:
            break
        level = sign * metric
        if level > best:
            best = level
            log_epochs.append(math.log(at))
            levels.append(level)
    return log_epochs, levels


def _latest_record(curve: MetricCurve, epochs: float, sign: float) -> tuple[float, float]:
    """Epochs and level of the latest evaluation up to `epochs` that improved the running best; 0 epochs: none."""
    reached, best = 0.0, -math.inf
    limit = epochs * (1 + ROUNDING)
    for at, metric in zip(curve.epochs, curve.metrics, strict=True):
        if at > limit:
            break
        if sign * metric > best:
            reached, best = at, sign * metric
    return reached, best


def _node_below(log_fraction: float) -> tuple[int, float]:
    """The last of `LOG_FRACTIONS` below a log fraction, and the share of the distance to the next one; clamped."""
    if log_fraction <= LOG_FRACTIONS[0]:
        return 0, 0.0
    if log_fraction >= LOG_FRACTIONS[-1]:
        return len(LOG_FRACTIONS) - 1, 0.0
    below = bisect_right(LOG_FRACTIONS, log_fraction) - 1
    first, last = LOG_FRACTIONS[below], LOG_FRACTIONS[below + 1]
    return below, (log_fraction - first) / (last - first)


class _Neighbours(NamedTuple):
    """The other arms as one arm sees them.

    Attributes:
        nearest: The arms by distance; of two equally near ones, the smaller first.
    """

    distances: list[float]
    nearest: list[int]


class CurveModel:
    """References and learned spread of one job.

    Args:
        distances: Distance of each two arms in octaves, shape (arms, arms).
        maximize: Whether a higher metric is better.
    """

    def __init__(self, distances: Matrix, maximize: bool) -> None:
        self._distances = distances
        # Few arms of a large space ever run.
        self._neighbours: dict[int, _Neighbours] = {}
        self._sign = 1.0 if maximize else -1.0
        self._references: dict[int, deque[_Reference]] = {}
        self._assessed: dict[int, int] = {}
        self._runs: dict[int, int] = {}
        self._squares = [PRIOR_WEIGHT * sd**2 for sd in PRIOR_SD]
        self._weights = [PRIOR_WEIGHT] * len(FRACTIONS)

    def learn(self, arm: int, curve: MetricCurve, epochs: float) -> None:
        """Learn from the curve of an attempt that reached the target after these epochs."""
        if not curve.epochs:
            return
        reference = _Reference(curve, epochs, self._sign)
        if self._assessed.get(arm, 0) < ASSESSED_PER_ARM:
            nearest = self._neighbours_of(arm).nearest
            others = [other for other in nearest if other in self._references and other != arm]
            if others:
                self._assessed[arm] = self._assessed.get(arm, 0) + 1
                self._assess(arm, reference, others)
        runs = self._runs[arm] = self._runs.get(arm, 0) + 1
        if runs & (runs - 1) == 0:
            self._references.setdefault(arm, deque(maxlen=REFERENCES_PER_ARM)).append(reference)

    def predict(self, arm: int, curve: MetricCurve, epochs: float) -> CurvePrediction | None:
        """Predict the log epochs of an attempt from its curve after these epochs; None without a basis."""
        if epochs <= 0 or not self._references:
            return None
        reached, level = _latest_record(curve, epochs, self._sign)
        if not reached:
            return None
        log_now = math.log(epochs)
        others = [other for other in self._neighbours_of(arm).nearest if other in self._references]
        predicted = self._mean_prediction(arm, level, math.log(reached), log_now, others)
        return CurvePrediction(predicted, self._spread_at(log_now - predicted))

    def forget_references(self) -> None:
        """Start a regime: earlier runs say nothing about its epochs. The learned spread remains."""
        self._references, self._runs = {}, {}

    def copy(self) -> CurveModel:
        """An independent copy."""
        clone = copy.copy(self)
        clone._references = {arm: references.copy() for arm, references in self._references.items()}
        clone._assessed, clone._runs = dict(self._assessed), dict(self._runs)
        clone._squares, clone._weights = list(self._squares), list(self._weights)
        return clone

    def _neighbours_of(self, arm: int) -> _Neighbours:
        found = self._neighbours.get(arm)
        if found is None:
            row = self._distances[arm]
            found = self._neighbours[arm] = _Neighbours(row.tolist(), row.argsort(kind="stable").tolist())
        return found

    def _mean_prediction(self, arm: int, level: float, log_reached: float, log_now: float, others: list[int]) -> float:
        """Mean of the predictions from the references of the nearest of these arms, nearer arms weighing more."""
        total = weights = 0.0
        distances = self._neighbours_of(arm).distances
        for other in others[:REFERENCE_ARMS]:
            weight = 1 / (1 + distances[other] / HALF_WEIGHT_OCTAVES)
            references = self._references[other]
            predictions = [each.log_epochs_of(level, log_reached, log_now) for each in references]
            total += weight * sum(predictions) / len(predictions)
            weights += weight
        return total / weights

    def _spread_at(self, log_fraction: float) -> float:
        """The learned spread of predictions at a fraction of a run, between the nodes linear in its log."""
        below, share = _node_below(log_fraction)
        spread = math.sqrt(self._squares[below] / self._weights[below])
        if not share:
            return spread
        above = math.sqrt(self._squares[below + 1] / self._weights[below + 1])
        return spread + share * (above - spread)

    def _assess(self, arm: int, run: _Reference, others: list[int]) -> None:
        """Learn the errors of predictions at some fractions of a complete run, from runs of other arms."""
        log_epochs, levels = run.records
        log_total = math.log(run.epochs)
        for log_fraction in LOG_FRACTIONS:
            log_now = log_total + log_fraction
            seen = bisect_right(log_epochs, log_now + ROUNDING)
            if not seen:
                continue
            predicted = self._mean_prediction(arm, levels[seen - 1], log_epochs[seen - 1], log_now, others)
            below, share = _node_below(log_now - predicted)
            square = min(abs(predicted - log_total), MAX_ERROR) ** 2
            for node, weight in ((below, 1 - share), (below + 1, share)):
                if weight:
                    self._squares[node] += weight * square
                    self._weights[node] += weight


@dataclass(frozen=True)
class AttemptEpochs:
    """Gaussian approximation of the log epochs of one attempt to the target."""

    mean: float
    variance: float

    def with_curve(self, prediction: CurvePrediction) -> AttemptEpochs:
        """The moments after a prediction from the attempt's curve.

        The prediction equals the log epochs with the error of its spread, or is unrelated to them with a
        small probability. The more a prediction contradicts the prior, the likelier it is unrelated.

        Example:
            >>> AttemptEpochs(0.0, 0.1).with_curve(CurvePrediction(0.2, 0.2)).mean < 0.2
            True
        """
        total = self.variance + prediction.sd**2
        surprise = prediction.log_epochs - self.mean
        related = (1 - WORTHLESS_PROBABILITY) * _density(surprise, total)
        unrelated = WORTHLESS_PROBABILITY * _density(surprise, total + WORTHLESS_SD**2)
        weight = related / (related + unrelated)
        shift = surprise * self.variance / total
        reduced = self.variance * prediction.sd**2 / total
        variance = weight * reduced + (1 - weight) * self.variance + weight * (1 - weight) * shift**2
        return AttemptEpochs(self.mean + weight * shift, variance)

    def beyond(self, log_epochs: float, outlier_probability: float = 0.0) -> AttemptEpochs:
        """The moments given that the attempt takes more epochs, unless it is an outlier."""
        return AttemptEpochs(*moments_beyond(self.mean, self.variance, 0.0, log_epochs, outlier_probability))


def _density(distance: float, variance: float) -> float:
    return math.exp(-min(distance**2 / variance / 2, 600.0)) / math.sqrt(variance)
