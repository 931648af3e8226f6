"""Energy at and between moments, interpolated between the edges of a counter or integrated from power readings."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.energy.edges import Edge

# Interval between updates of an H200's power sensor; a change of power in between is not visible.
SENSOR_STEP_SECONDS = 0.042


@dataclass(frozen=True)
class Energy:
    """An estimate of energy.

    Attributes:
        joules: The estimate.
        uncertainty_joules: Bound of the error between the second and the last but one edge, provided
            that power changed at most once between two edges.
    """

    joules: float
    uncertainty_joules: float


def energy_at(edges: Sequence[Edge], moment: float) -> Energy:
    """Energy used until a moment, counted from the zero of the counter.

    Args:
        edges: Edges of the counter, oldest first; at least two, at distinct times.
        moment: Time in seconds, on the clock of the readings.

    Example:
        >>> energy_at([Edge(k, k, 10_000 * k) for k in range(5)], 2.5)
        Energy(joules=25.0, uncertainty_joules=0.0)
    """
    after = bisect.bisect_right(edges, moment, key=lambda edge: edge.time_seconds)
    index = min(max(after, 1), len(edges) - 1)
    before, behind = edges[index - 1], edges[index]
    power = _power(before, behind)
    joules = before.energy_millijoules / 1000 + power * (moment - before.time_seconds)
    timing = power * max(before.uncertainty_seconds, behind.uncertainty_seconds)
    return Energy(joules, timing + _invisible_change(edges, index, moment))


def _invisible_change(edges: Sequence[Edge], index: int, moment: float) -> float:
    """The largest error, in joules, from a change of power within a step, which the counter does not show."""
    before, behind = edges[index - 1], edges[index]
    power = _power(before, behind)
    length = behind.time_seconds - before.time_seconds
    neighbours = [power]
    if index >= 2:
        neighbours.append(_power(edges[index - 2], before))
    if index + 1 < len(edges):
        neighbours.append(_power(behind, edges[index + 1]))
    swing = max(neighbours) - min(neighbours)
    outside = max(before.time_seconds - moment, moment - behind.time_seconds, 0.0)
    if outside > 0:
        # There are no readings yet: power may have fallen to zero or doubled.
        return power * outside + swing * length / 4
    # A jump by `swing` inside a step bends the line by at most a quarter of swing times length.
    return swing * length / 4


def _power(before: Edge, behind: Edge) -> float:
    return (behind.energy_millijoules - before.energy_millijoules) / 1000 / (behind.time_seconds - before.time_seconds)


def energy_of_power(
    readings: Sequence[tuple[float, float]], sensor_step_seconds: float = SENSOR_STEP_SECONDS
) -> Energy:
    """The energy between the first and the last power reading, by the trapezoidal rule.

    Args:
        readings: (seconds, watts), in order of time, at least two.
        sensor_step_seconds: Interval between updates of the sensor.

    Returns:
        The energy. The time of a change of power is known to within one step of the sensor. Changes are
        independent of the steps, so their errors add in squares.

    Raises:
        ValueError: Fewer than two readings.

    Example:
        >>> energy_of_power([(0.0, 100.0), (4.0, 100.0), (10.0, 100.0)])
        Energy(joules=1000.0, uncertainty_joules=0.0)
    """
    if len(readings) < 2:
        raise ValueError(f"{len(readings)} power readings; at least two are needed")
    joules, squares = 0.0, 0.0
    for (begin, before), (end, after) in itertools.pairwise(readings):
        joules += (end - begin) * (before + after) / 2
        squares += (abs(after - before) * max(end - begin, sensor_step_seconds) / 2) ** 2
    return Energy(joules, math.sqrt(squares))
