"""The curve of an attempt: the metric over the epochs."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import median_low

from wattloop.wire.environment import RunTarget


@dataclass(frozen=True)
class MetricCurve:
    """The evaluations of an attempt's metric; `from_points` accepts unordered and invalid points.

    Attributes:
        epochs: Epochs after which the metric was evaluated: positive, strictly rising.
        metrics: The finite values of the metric; as many as epochs.

    Raises:
        ValueError: The epochs do not rise, or a value is invalid.

    Example:
        >>> MetricCurve((1.0, 2.0), (0.5, 0.7)).before(1.5)
        MetricCurve(epochs=(1.0,), metrics=(0.5,))
    """

    epochs: tuple[float, ...]
    metrics: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.epochs) != len(self.metrics):
            raise ValueError(f"{len(self.epochs)} epochs and {len(self.metrics)} metrics: expected equal numbers")
        if not all(map(math.isfinite, (*self.epochs, *self.metrics))):
            raise ValueError("an epoch or a metric is not finite")
        if any(map(operator.ge, (0.0, *self.epochs), self.epochs)):
            raise ValueError("the epochs of a curve must be positive and rise strictly")

    @classmethod
    def from_points(cls, points: Iterable[tuple[float, float]]) -> MetricCurve | None:
        """The curve of these points (epochs, metric) in any order; None if no point is valid.

        Points that are not finite, or whose epochs are not positive, are dropped. Of several values at
        the same epoch, the lower median of the distinct values remains, so that neither order nor
        repetition matters.

        Example:
            >>> MetricCurve.from_points([(2, 0.7), (1, 0.5), (2, 0.7), (3, float("nan"))])
            MetricCurve(epochs=(1.0, 2.0), metrics=(0.5, 0.7))
        """
        valid = {
            (float(epochs), float(metric))
            for epochs, metric in points
            if math.isfinite(epochs) and math.isfinite(metric) and epochs > 0
        }
        by_epochs = [(epochs, list(found)) for epochs, found in groupby(sorted(valid), key=lambda point: point[0])]
        if not by_epochs:
            return None
        metrics = tuple(median_low(metric for _, metric in found) for _, found in by_epochs)
        return cls(tuple(epochs for epochs, _ in by_epochs), metrics)

    def before(self, epochs: float) -> MetricCurve:
        """The part of the curve up to and including these epochs."""
        count = bisect_right(self.epochs, epochs)
        return self if count == len(self.epochs) else MetricCurve(self.epochs[:count], self.metrics[:count])

    def first_reached(self, target: RunTarget) -> float | None:
        """Epochs at the evaluation that reaches a target for the required consecutive time; None: never."""
        consecutive = 0
        for epochs, metric in zip(self.epochs, self.metrics, strict=True):
            consecutive = consecutive + 1 if target.reached_by(metric) else 0
            if consecutive >= target.consecutive_evaluations:
                return epochs
        return None
