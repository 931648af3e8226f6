"""Whether an attempt went on from what an earlier attempt of its recurrence had trained.

A script may load its own checkpoint after a disruption. Its energy is then that of the last epochs alone, while its
epochs count from the first one, or its first evaluation is as good as the last one before. Such an attempt says neither
what an epoch costs nor how many a training needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from wattloop_operator.domain.records import ObservationRecord
from wattloop_planner.metric_curve import MetricCurve

# Some libraries write epochs with two decimals.
SAME_EPOCH = 0.01


def is_resumed(curve: MetricCurve | None, earlier: Iterable[ObservationRecord]) -> bool:
    """Whether an attempt continued an earlier one, as far as their evaluations show it.

    Args:
        curve: Its evaluations; None without any.
        earlier: The earlier attempts of its recurrence in the same configuration.
    """
    return curve is not None and any(
        each.curve is not None and (_begins_later(curve, each.curve) or _goes_on_from(curve, each.curve))
        for each in earlier
    )


def _begins_later(curve: MetricCurve, before: MetricCurve) -> bool:
    """Whether its first evaluation is of a later epoch than that of the earlier attempt."""
    return curve.epochs[0] > before.epochs[0] + SAME_EPOCH


def _goes_on_from(curve: MetricCurve, before: MetricCurve) -> bool:
    """Whether its first evaluation is nearer to the last one of the earlier attempt than to the first."""
    first, last = before.metrics[0], before.metrics[-1]
    return abs(curve.metrics[0] - last) < abs(curve.metrics[0] - first)
