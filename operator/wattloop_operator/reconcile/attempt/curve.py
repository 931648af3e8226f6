"""The curve of an attempt's metric, in bounded size, as evaluations arrive one after the other.

The first, the latest and the best evaluation are always kept. Of the others, the one whose
neighbours are closest to each other in epochs is dropped when the curve is full, so that the
remaining ones stay spread over all epochs.
"""

from __future__ import annotations

from decimal import Decimal

from wattloop_operator.api.attempt import MAX_CURVE_POINTS, CurvePoint
from wattloop_operator.api.field_types import format_decimal, to_decimal

Curve = tuple[CurvePoint, ...]


def curve_with(curve: Curve, epoch: Decimal, metric: float, *, maximize: bool) -> Curve:
    """The curve with one more evaluation.

    Of several evaluations at the latest epoch the best one counts. An evaluation before any
    training is not part of the curve.

    Args:
        curve: The evaluations so far, by rising epochs.
        epoch: Epochs run at the evaluation; less than at the latest one only by rounding.
        metric: Its finite value.
        maximize: Whether higher is better.
    """
    latest = curve[-1].epoch if curve else Decimal(0)
    point = CurvePoint(epoch=max(_stored(epoch), latest), metric=_stored(to_decimal(metric)))
    if not point.epoch:
        return curve
    if point.epoch == latest:
        return (*curve[:-1], best_point((curve[-1], point), maximize=maximize))
    return _thinned((*curve, point), maximize=maximize)


def best_point(curve: Curve, *, maximize: bool) -> CurvePoint:
    """The best evaluation of a curve with at least one; of equal ones the earliest."""
    return (max if maximize else min)(curve, key=lambda point: point.metric)


def _thinned(curve: Curve, *, maximize: bool) -> Curve:
    if len(curve) <= MAX_CURVE_POINTS:
        return curve
    best = best_point(curve, maximize=maximize)
    inner = [index for index in range(1, len(curve) - 1) if curve[index] is not best]
    dropped = min(inner, key=lambda index: curve[index + 1].epoch - curve[index - 1].epoch)
    return curve[:dropped] + curve[dropped + 1 :]


def _stored(number: Decimal) -> Decimal:
    """The number as it is read again from its wire form, so that epochs still rise then."""
    return Decimal(format_decimal(number))
