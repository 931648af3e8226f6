"""Mean time of each activity of a rank, from the stamps of its repetitions.

A repetition with a pause in it is found by its distance from the median, in units of the median absolute deviation
(Rousseeuw and Croux 1993).
"""

import math
import statistics
from array import array
from collections.abc import Sequence

from wattloop.pipeline.activities import Activity
from wattloop.pipeline.standard_errors import RegressionEstimate, jackknife_variance, widening

# Of the newest repetitions of an activity, which count.
MAX_KEPT = 4096
MIN_FOR_OUTLIERS = 8
OUTLIER_DEVIATIONS = 8.0
# Of the median, below which no difference is an outlier.
MIN_OUTLIER_SHARE = 0.1
# The bounds are computed again after so many times more repetitions.
RENEWAL = 1.25
GROUPS = 32
MAD_TO_DEVIATION = 1.4826


class InstructionTimes:
    """The times of repetitions, by activity; in bounded memory.

    Example:
        >>> times, forward = InstructionTimes(), Activity("forward", 0, 1410)
        >>> for seconds in [0.050, 0.052] * 10 + [3.0]:
        ...     times.add(forward, seconds)
        >>> round(times.time(forward).value, 6), times.repetitions(forward)
        (0.051, 20)
    """

    def __init__(self) -> None:
        self._kept: dict[Activity, array[float]] = {}
        self._forgotten: dict[Activity, int] = {}
        self._bounds: dict[Activity, tuple[int, tuple[float, float]]] = {}

    @property
    def activities(self) -> Sequence[Activity]:
        """The activities, in the order in which they came first."""
        return list(self._kept)

    def add(self, activity: Activity, seconds: float) -> None:
        """Add a repetition."""
        kept = self._kept.setdefault(activity, array("d"))
        kept.append(seconds)
        if len(kept) >= 2 * MAX_KEPT:
            self._forgotten[activity] = self._forgotten.get(activity, 0) + len(within(kept[:-MAX_KEPT]))
            del kept[:-MAX_KEPT]

    def repetitions(self, activity: Activity) -> int:
        """Number of repetitions, without outliers."""
        return self._forgotten.get(activity, 0) + len(within(self._kept[activity]))

    def bounds(self, activity: Activity) -> tuple[float, float]:
        """The times between which a repetition is no outlier, by most of the repetitions so far."""
        kept = self._kept.get(activity, array("d"))
        due, found = self._bounds.get(activity, (0, (0.0, math.inf)))
        count = self._forgotten.get(activity, 0) + len(kept)
        if count >= due:
            found = bounds(kept)
            self._bounds[activity] = (max(MIN_FOR_OUTLIERS, math.ceil(count * RENEWAL)), found)
        return found

    def time(self, activity: Activity) -> RegressionEstimate:
        """Mean time; its error is infinite for a single repetition."""
        return mean_time(within(self._kept[activity]))


def bounds(seconds: Sequence[float]) -> tuple[float, float]:
    """The times between which a repetition is no outlier; all times while there are few."""
    if len(seconds) < MIN_FOR_OUTLIERS:
        return 0.0, math.inf
    median = statistics.median(seconds)
    deviation = MAD_TO_DEVIATION * statistics.median(abs(value - median) for value in seconds)
    distance = max(OUTLIER_DEVIATIONS * deviation, MIN_OUTLIER_SHARE * median)
    return median - distance, median + distance


def within(seconds: Sequence[float]) -> list[float]:
    """The repetitions without outliers."""
    low, high = bounds(seconds)
    return [value for value in seconds if low <= value <= high]


def mean_time(seconds: Sequence[float]) -> RegressionEstimate:
    """The mean and its standard error, which holds for repetitions that drift or depend on each other."""
    count = len(seconds)
    mean = math.fsum(seconds) / count
    if count < 2:
        return RegressionEstimate(mean, math.inf)
    independent = statistics.variance(seconds, mean) / count
    if count < 2 * GROUPS:
        return RegressionEstimate(mean, math.sqrt(independent) * widening(count - 1))
    whole, total = math.fsum(seconds), float(count)
    without = []
    for number in range(GROUPS):
        group = seconds[number * count // GROUPS : (number + 1) * count // GROUPS]
        without.append((whole - math.fsum(group)) / (total - len(group)))
    return RegressionEstimate(mean, math.sqrt(max(independent, jackknife_variance(without))) * widening(GROUPS - 1))
