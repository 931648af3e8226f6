"""Energy from power readings, for GPUs without an energy counter, and to check one against the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from wattloop.energy.interpolation import Energy

# How often power readings step on an H200; what happens in between is not seen, however often they are asked for.
SENSOR_STEP_SECONDS = 0.042


def energy_of_power(
    readings: Sequence[tuple[float, float]], sensor_step_seconds: float = SENSOR_STEP_SECONDS
) -> Energy:
    """The energy between the first and the last reading, by the trapezoidal rule.

    Args:
        readings: (seconds, watts), in order of time, at least two.
        sensor_step_seconds: How long a reading of the sensor stands.

    Returns:
        The energy. When a change of power came is known to a step of the sensor; the changes come independently of its
        steps, so their errors add in squares.

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
