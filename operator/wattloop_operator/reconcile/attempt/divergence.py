"""Divergence: when the metric of an attempt shows that it will not reach the target."""

from __future__ import annotations

from wattloop.wire.environment import RunTarget
from wattloop_planner.metric_curve import MetricCurve

# A metric that is worse than the first evaluation by this part of its size has not only noise.
MIN_RELATIVE_LOSS = 0.5
# One bad evaluation is common where a training goes well: statistics of normalisation that lag behind the weights, or a
# spike of the loss that heals within an epoch.
EVALUATIONS_AWAY = 3


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
