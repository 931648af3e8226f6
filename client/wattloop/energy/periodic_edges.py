"""The times of the steps of an energy counter that advances periodically, from bounds on each of them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

MIN_EDGES = 6
# A device's counter may deviate from its period by so much. The smallest value that fits is taken.
JITTERS_SECONDS = (0.0, 0.0005, 0.002)
# A gap of more than so many mean gaps means that readings were delayed and edges were missed.
MISSED_GAPS = 1.7


@dataclass(frozen=True)
class EdgeTime:
    """The estimated time of one edge; the attributes are those of `EdgeTimes`."""

    seconds: float
    half_width_seconds: float
    period_seconds: float | None
    period_half_width_seconds: float


@dataclass(frozen=True)
class EdgeTimes:
    """Estimated times of edges.

    Attributes:
        times_seconds: The times, in order.
        half_width_seconds: The largest error of a time. With a period, all times have the same error,
            so that it cancels in the energy between two moments of equal power.
        period_seconds: The common period; None if the edges have none.
        period_half_width_seconds: The largest error of the period.
    """

    times_seconds: tuple[float, ...]
    half_width_seconds: float
    period_seconds: float | None = None
    period_half_width_seconds: float = 0.0

    def edge(self, index: int) -> EdgeTime:
        """One of the edges."""
        return EdgeTime(
            self.times_seconds[index], self.half_width_seconds, self.period_seconds, self.period_half_width_seconds
        )


def edge_times(bounds: Sequence[tuple[float, float]]) -> EdgeTimes:
    """The times of consecutive edges.

    With a period T and a first edge a, edge number n is at a + n·T. Each edge bounds a + n·T, so the
    feasible pairs (a, T) are a polygon. The result is its centre: the middle of the feasible periods,
    and the middle of the first edges that this period allows. Without a feasible pair each time is the
    middle of its own bounds.

    Args:
        bounds: Earliest and latest time of each edge, in order; at least one.

    Example:
        >>> read_every_43_ms = [(0.043 * k, 0.043 * (k + 1)) for k in range(100)]
        >>> steps = [next(b for b in read_every_43_ms if b[1] >= 0.03 + 0.1 * k) for k in range(30)]
        >>> found = edge_times(steps)
        >>> round(found.period_seconds, 3), abs(found.times_seconds[20] - 2.03) < 0.002
        (0.1, True)
    """
    if len(bounds) >= MIN_EDGES:
        for jitter in JITTERS_SECONDS:
            found = _periodic([(earliest - jitter, latest + jitter) for earliest, latest in bounds])
            if found is not None:
                return found
    middles = tuple((earliest + latest) / 2 for earliest, latest in bounds)
    return EdgeTimes(middles, max(latest - earliest for earliest, latest in bounds) / 2)


def blended(first: EdgeTime, second: EdgeTime, weight: float) -> EdgeTime:
    """One edge from two estimates, the second of this weight; one with a period is preferred to one without.

    Example:
        >>> blended(EdgeTime(1.0, 0.004, 0.1, 0.0), EdgeTime(1.004, 0.002, 0.1, 0.0), 0.25).seconds
        1.001
    """
    if (first.period_seconds is None) != (second.period_seconds is None):
        return second if first.period_seconds is None else first
    return EdgeTime(
        first.seconds + weight * (second.seconds - first.seconds),
        max(first.half_width_seconds, second.half_width_seconds),
        second.period_seconds,
        max(first.period_half_width_seconds, second.period_half_width_seconds),
    )


def _periodic(bounds: Sequence[tuple[float, float]]) -> EdgeTimes | None:
    numbers = _numbers([(earliest + latest) / 2 for earliest, latest in bounds])
    if numbers is None:
        return None
    shortest, longest = 0.0, float("inf")
    # Only the corners of the bounds' convex hulls can bound the polygon.
    lower = _upper_hull([(number, earliest) for number, (earliest, _) in zip(numbers, bounds, strict=True)])
    upper = [(n, -y) for n, y in _upper_hull([(n, -latest) for n, (_, latest) in zip(numbers, bounds, strict=True)])]
    for number, earliest in lower:
        for other, latest in upper:
            if number > other:
                shortest = max(shortest, (earliest - latest) / (number - other))
            elif number < other:
                longest = min(longest, (latest - earliest) / (other - number))
    if shortest > longest:
        return None
    period = (shortest + longest) / 2
    first = max(earliest - number * period for number, earliest in lower)
    last = min(latest - number * period for number, latest in upper)
    if first > last:
        return None
    origin = (first + last) / 2
    times = tuple(origin + number * period for number in numbers)
    return EdgeTimes(times, (last - first) / 2, period, (longest - shortest) / 2)


def _upper_hull(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The corners of the upper convex hull of points in order of x (Andrew 1979)."""
    hull: list[tuple[int, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


def _numbers(middles: Sequence[float]) -> list[int] | None:
    """The number of periods from the first edge to each; None if two edges have the same number."""
    gaps = sorted(after - before for before, after in itertools.pairwise(middles))
    mean = (middles[-1] - middles[0]) / len(gaps)
    if gaps[-1] <= MISSED_GAPS * mean:
        return list(range(len(middles)))
    period = gaps[len(gaps) // 2]
    numbers = [0]
    for middle in middles[1:]:
        elapsed = middle - middles[0]
        numbers.append(round(elapsed / period))
        if numbers[-1] <= numbers[-2]:
            return None
        period = elapsed / numbers[-1]
    return numbers
