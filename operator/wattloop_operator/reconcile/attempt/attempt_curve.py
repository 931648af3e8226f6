"""The curve of an attempt's metric, in bounded size, as evaluations arrive one after the other, and its divergence.

The first, the latest and the best evaluation are always kept. Of the others, the one whose
neighbours are closest to each other in epochs is dropped when the curve is full, so that the
remaining ones stay spread over all epochs.
"""

from __future__ import annotations

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.field_types import format_decimal, to_decimal
from wattloop_planner.metric_curve import MetricCurve

# A metric that is worse than the first evaluation by this part of its size has not only noise.
MIN_RELATIVE_LOSS = 0.5
# One bad evaluation is common where a training goes well: statistics of normalisation that lag behind the weights, or a
# spike of the loss that heals within an epoch.
EVALUATIONS_AWAY = 3


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


def has_moved_away(curve: MetricCurve | None, target: RunTarget) -> bool:
    """Whether each of the latest evaluations is far worse than the first.

    Each must be worse by more than the distance of the first evaluation from the target, and by more than
    half the size of the first evaluation, so that noise near the target does not count.

    Args:
        curve: The evaluations so far; None if there were none.
        target: The target.
    """
    if curve is None or target.reached_by(curve.metrics[0]) or len(curve.metrics) <= EVALUATIONS_AWAY:
        return False
    first = curve.metrics[0]
    allowed = max(abs(target.threshold - first), MIN_RELATIVE_LOSS * abs(first))
    losses = ((first - each) if target.maximize else (each - first) for each in curve.metrics[-EVALUATIONS_AWAY:])
    return all(loss > allowed for loss in losses)
