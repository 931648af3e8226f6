"""The curve of an attempt's metric, in bounded size, as evaluations arrive one after the other.

The first, the latest and the best evaluation are always kept. Of the others, the one whose
neighbours are closest to each other in epochs is dropped when the curve is full, so that the
remaining ones stay spread over all epochs.
"""

from __future__ import annotations

from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.field_types import format_decimal, to_decimal
from wattloop_planner.metric_curve import MetricCurve


def curve_with(curve: MetricCurve | None, epoch: float, metric: float, *, maximize: bool) -> MetricCurve | None:
    """The curve with one more evaluation.

    Of several evaluations at the latest epoch the best one counts. An evaluation before any
    training is not part of the curve.

    Args:
        curve: The evaluations so far; None if there are none.
        epoch: Epochs run at the evaluation; less than at the latest one only by rounding.
        metric: Its finite value.
        maximize: Whether higher is better.
    """
    epoch, metric = _stored(epoch), _stored(metric)
    if curve is None:
        return MetricCurve((epoch,), (metric,)) if epoch > 0 else None
    epochs, metrics = curve.epochs, curve.metrics
    if epoch > epochs[-1]:
        return _thinned(MetricCurve((*epochs, epoch), (*metrics, metric)), maximize=maximize)
    best = max if maximize else min
    return MetricCurve(epochs, (*metrics[:-1], best(metrics[-1], metric)))


def _thinned(curve: MetricCurve, *, maximize: bool) -> MetricCurve:
    epochs, metrics = curve.epochs, curve.metrics
    if len(epochs) <= MAX_CURVE_POINTS:
        return curve
    best = metrics.index((max if maximize else min)(metrics))
    inner = (index for index in range(1, len(epochs) - 1) if index != best)
    dropped = min(inner, key=lambda index: epochs[index + 1] - epochs[index - 1])
    return MetricCurve(epochs[:dropped] + epochs[dropped + 1 :], metrics[:dropped] + metrics[dropped + 1 :])


def _stored(number: float) -> float:
    """The number as it is read again from its wire form, so that epochs still rise then."""
    return float(format_decimal(to_decimal(number)))
