"""Divergence: when the metric of an attempt shows that it will not reach the target."""

from __future__ import annotations

from wattloop.environment import RunTarget
from wattloop_planner.metric_curve import MetricCurve

# A metric that is worse than the first evaluation by this part of its size has not only noise.
MIN_RELATIVE_LOSS = 0.5


def has_moved_away(curve: MetricCurve | None, target: RunTarget) -> bool:
    """Whether the latest evaluation is far worse than the first.

    It must be worse by more than the distance of the first evaluation from the target, and by more than
    half the size of the first evaluation, so that noise near the target does not count.

    Args:
        curve: The evaluations so far; None if there were none.
        target: The target.
    """
    if curve is None or target.reached_by(curve.metrics[0]):
        return False
    first, latest = curve.metrics[0], curve.metrics[-1]
    loss = first - latest if target.maximize else latest - first
    return loss > max(abs(target.threshold - first), MIN_RELATIVE_LOSS * abs(first))
