"""Power of each activity of a GPU: a linear regression over the steps of its energy counter.

Between two steps, the counter's increase is the sum over activities of their power times their seconds. The expected
share of the errors of the steps' times is subtracted from the normal equations (Fuller 1987, Measurement Error Models,
section 2.2). A weak prior centres each power on the mean. The standard error is the larger of that of the regression
and that of a jackknife over groups of consecutive steps, widened by Student's t. More: docs/internals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TypeVar

from wattloop.energy.energy_timeline import MAX_GAP_SECONDS, ROUNDING_JOULES, CounterEdge
from wattloop.pipeline.activities import Activity, ActivityHistory
from wattloop.pipeline.standard_errors import RegressionEstimate, jackknife_variance, widening
from wattloop.power.linear_algebra import Matrix, cholesky, inverse, solve, times

Key = TypeVar("Key")

# Groups are joined in pairs when there are more.
MAX_GROUPS = 48
MIN_GROUPS = 8
MAX_ACTIVITIES = 64
# Of the timing errors' share of the normal equations; the first with a solution is used.
CORRECTIONS = (1.0, 0.5, 0.0)
# Rows that have the same error of the times of a periodic counter.
COMMON_ROWS = 128


@dataclass(frozen=True)
class TimingError:
    """An error of the times of a counter's steps, and how it changes the seconds of a row.

    Attributes:
        deviation_seconds: Its standard deviation.
        direction: Change of each activity's seconds, by second of the error.
    """

    deviation_seconds: float
    direction: Mapping[Activity, float]


@dataclass(frozen=True)
class RegressionRow:
    """The time between two steps of a counter.

    Attributes:
        joules: Increase of the counter.
        seconds: Seconds of each activity.
        timing_errors: Independent errors of the two times.
    """

    joules: float
    seconds: Mapping[Activity, float]
    timing_errors: Sequence[TimingError] = ()


class PowerRegression:
    """The regression of one GPU, in bounded memory.

    Example:
        >>> forward, backward = Activity("forward", 0, 0), Activity("backward", 0, 0)
        >>> regression = PowerRegression()
        >>> for number in range(40):
        ...     share = 0.02 + 0.06 * (number % 5) / 4
        ...     seconds = {forward: share, backward: 0.1 - share}
        ...     regression.add(RegressionRow(300 * seconds[forward] + 500 * seconds[backward], seconds))
        >>> powers = regression.solved()
        >>> {activity.kind: round(powers.power(activity).value) for activity in (forward, backward)}
        {'forward': 300, 'backward': 500}
    """

    def __init__(self) -> None:
        self._numbers: dict[Activity, int] = {}
        self._groups: list[_Sums] = []
        self._rows_per_group = 1

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return sum(group.rows for group in self._groups)

    def add(self, row: RegressionRow) -> None:
        """Add the next row in time; one with too many different activities is ignored."""
        numbers = self._numbers
        for activity in row.seconds:
            if activity not in numbers:
                if len(numbers) == MAX_ACTIVITIES:
                    return
                numbers[activity] = len(numbers)
        if not self._groups or self._groups[-1].rows >= self._rows_per_group:
            if len(self._groups) == MAX_GROUPS:
                self._groups = [one.plus(other) for one, other in zip(*[iter(self._groups)] * 2, strict=True)]
                self._rows_per_group *= 2
            self._groups.append(_Sums())
        self._groups[-1].add(row, numbers)

    def solved(self) -> Powers | None:
        """The powers by the rows so far; None if there are too few."""
        groups = self._groups
        if len(groups) < max(MIN_GROUPS, len(self._numbers) + 3):
            return None
        return _solve(self._numbers, groups)


@dataclass(frozen=True)
class Powers:
    """Power of each activity, in watts, and of sums of them.

    Attributes:
        numbers: Position of each activity.
        watts: The powers.
        covariance: Their covariance by the regression.
        without: The powers without each group of rows.
        timing: Errors of the powers due to errors of times that many rows have in common; independent of each other.
        corrected: Whether the timing errors' whole share could be subtracted.
        shares: Share of each activity of the time.
        centre: Mean power.
        residual_joules: Standard deviation of the rows' errors.
    """

    numbers: Mapping[Activity, int]
    watts: Sequence[float]
    covariance: Matrix
    without: Sequence[Sequence[float]]
    timing: Sequence[Sequence[float]]
    corrected: bool
    shares: Sequence[float]
    centre: float
    residual_joules: float

    def power(self, activity: Activity) -> RegressionEstimate | None:
        """Power of one activity; None if it has no row."""
        return self.weighted({activity: 1.0}) if activity in self.numbers else None

    def weighted(self, weights: Mapping[Activity, float]) -> RegressionEstimate | None:
        """The sum of powers times weights, such as the energy of an iteration; None if one has no row."""
        vector = [0.0] * len(self.watts)
        for activity, weight in weights.items():
            number = self.numbers.get(activity)
            if number is None:
                return None
            vector[number] += weight
        value = _dot(vector, self.watts)
        model = _dot(vector, times(self.covariance, vector))
        observed = jackknife_variance([_dot(vector, each) for each in self.without])
        timing = sum(_dot(vector, each) ** 2 for each in self.timing)
        error = math.sqrt(max(model, observed, 0.0) + timing) * widening(len(self.without) - len(self.watts))
        if not self.corrected:
            # The powers are pulled towards each other by an unknown amount; their mean is not.
            whole = sum(vector)
            apart = [weight - whole * share for weight, share in zip(vector, self.shares, strict=True)]
            error = math.hypot(error, self.centre * math.hypot(*apart))
        return RegressionEstimate(value, error)


class _Sums:
    """Sums over rows: of products of seconds, of the timing errors' part in them, and with the energy."""

    __slots__ = ("cross", "errors", "gram", "moment", "rows", "seconds", "square", "total", "whole_seconds")

    def __init__(self) -> None:
        self.rows = 0
        self.gram: dict[tuple[int, int], float] = {}
        self.errors: dict[tuple[int, int], float] = {}
        self.cross: dict[tuple[int, int], float] = {}
        self.moment: dict[int, float] = {}
        self.seconds: dict[int, float] = {}
        self.square = self.total = self.whole_seconds = 0.0

    def add(self, row: RegressionRow, numbers: Mapping[Activity, int]) -> None:
        seconds = [(numbers[activity], value) for activity, value in row.seconds.items()]
        _add_products(self.gram, seconds, 1.0)
        for each in row.timing_errors:
            parts = [(numbers[activity], value) for activity, value in each.direction.items() if activity in numbers]
            _add_products(self.errors, parts, each.deviation_seconds**2)
            for number, value in seconds:
                for other, change in parts:
                    product = value * change * each.deviation_seconds
                    self.cross[number, other] = self.cross.get((number, other), 0.0) + product
        for number, value in seconds:
            self.moment[number] = self.moment.get(number, 0.0) + value * row.joules
            self.seconds[number] = self.seconds.get(number, 0.0) + value
            self.whole_seconds += value
        self.rows += 1
        self.square += row.joules**2
        self.total += row.joules

    def plus(self, other: _Sums) -> _Sums:
        return _added([self, other])

    def less(self, other: _Sums) -> _Sums:
        return _added([self, other], signs=(1.0, -1.0))


def _added(parts: Sequence[_Sums], signs: Sequence[float] | None = None) -> _Sums:
    found = _Sums()
    for part, sign in zip(parts, signs or [1.0] * len(parts), strict=True):
        _accumulate(found.gram, part.gram, sign)
        _accumulate(found.errors, part.errors, sign)
        _accumulate(found.cross, part.cross, sign)
        _accumulate(found.moment, part.moment, sign)
        _accumulate(found.seconds, part.seconds, sign)
        found.rows += int(sign) * part.rows
        found.square += sign * part.square
        found.total += sign * part.total
        found.whole_seconds += sign * part.whole_seconds
    return found


def _accumulate(into: dict[Key, float], parts: Mapping[Key, float], sign: float) -> None:
    for key, value in parts.items():
        into[key] = into.get(key, 0.0) + sign * value


def _add_products(into: dict[tuple[int, int], float], parts: Sequence[tuple[int, float]], scale: float) -> None:
    for row, one in parts:
        for column, other in parts:
            if column <= row:
                into[row, column] = into.get((row, column), 0.0) + scale * one * other


def _solve(numbers: Mapping[Activity, int], groups: Sequence[_Sums]) -> Powers:
    total = _added(groups)
    size = len(numbers)
    centre = total.total / total.whole_seconds
    # A first guess, in square joules, for a prior that hardly matters.
    noise = (1e-3 * centre * total.whole_seconds / total.rows) ** 2
    for correction in CORRECTIONS:
        try:
            for _ in range(2):
                watts, factor = _regression(total, size, centre, noise, correction)
                noise = _residual_variance(total, watts)
            without = [_regression(total.less(group), size, centre, noise, correction)[0] for group in groups]
        except (ValueError, ZeroDivisionError):
            # The errors of the times are as large as the differences between the rows.
            continue
        covariance = [[noise * value for value in row] for row in inverse(factor)]
        return Powers(
            numbers=dict(numbers),
            watts=watts,
            covariance=covariance,
            without=without,
            timing=_timing(total, watts, factor),
            corrected=correction == CORRECTIONS[0],
            shares=[total.seconds[number] / total.whole_seconds for number in range(size)],
            centre=centre,
            residual_joules=math.sqrt(noise),
        )
    raise AssertionError("without a correction the prior makes the matrix positive definite")


def _regression(sums: _Sums, size: int, centre: float, noise: float, correction: float) -> tuple[list[float], Matrix]:
    """The powers, and the factor of the matrix of the normal equations."""
    matrix = [[0.0] * size for _ in range(size)]
    for part, sign in ((sums.gram, 1.0), (sums.errors, -correction)):
        for (row, column), value in part.items():
            matrix[row][column] += sign * value
            if row != column:
                matrix[column][row] += sign * value
    moment = [sums.moment.get(number, 0.0) - centre * sum(matrix[number]) for number in range(size)]
    for number in range(size):
        matrix[number][number] += noise / centre**2
    factor = cholesky(matrix)
    return [centre + value for value in solve(factor, moment)], factor


def _timing(sums: _Sums, watts: Sequence[float], factor: Matrix) -> list[list[float]]:
    """Errors of the powers if all times have an error of their deviation, and if the correction is wrong by itself."""
    shift, wrong = [0.0] * len(watts), [0.0] * len(watts)
    for (row, column), value in sums.cross.items():
        shift[row] += value * watts[column]
    for (row, column), value in sums.errors.items():
        wrong[row] += value * watts[column]
        if row != column:
            wrong[column] += value * watts[row]
    scale = math.sqrt(max(sums.rows / COMMON_ROWS, 1.0))
    return [[value / scale for value in solve(factor, vector)] for vector in (shift, wrong)]


def _residual_variance(sums: _Sums, watts: Sequence[float]) -> float:
    """Mean square of the rows' errors, at least that of a counter in whole millijoules."""
    square = sums.square
    for number, value in sums.moment.items():
        square -= 2 * watts[number] * value
    for (row, column), value in sums.gram.items():
        square += (1 if row == column else 2) * watts[row] * watts[column] * value
    return max(square / max(sums.rows - len(watts), 1), ROUNDING_JOULES**2)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(mul, one, other))


def rows(edges: Sequence[CounterEdge], history: ActivityHistory) -> Iterator[RegressionRow]:
    """The rows between consecutive steps whose time has known activities throughout.

    Args:
        edges: Steps in order of time.
        history: The activities.
    """
    for begin, end in itertools.pairwise(edges):
        length = end.seconds - begin.seconds
        if begin.epoch != end.epoch or end.number != begin.number + 1 or not 0 < length < MAX_GAP_SECONDS:
            continue
        seconds = history.seconds_between(begin.seconds, end.seconds)
        if seconds is not None:
            yield RegressionRow(end.joules - begin.joules, seconds, _timing_errors(begin, end, history))


def _timing_errors(begin: CounterEdge, end: CounterEdge, history: ActivityHistory) -> list[TimingError]:
    """How errors of the times of the two steps change the row's seconds.

    The steps of a periodic counter have the same error, so that a row is moved as a whole.
    """
    before, after = history.at(begin.seconds), history.at(end.seconds)
    if begin.periodic and end.periodic:
        if before is None or after is None or before == after:
            return []
        return [TimingError(max(begin.deviation_seconds, end.deviation_seconds), {before: -1.0, after: 1.0})]
    return [
        TimingError(edge.deviation_seconds, direction)
        for edge, direction in ((begin, _one(before, -1.0)), (end, _one(after, 1.0)))
        if direction
    ]


def _one(activity: Activity | None, change: float) -> dict[Activity, float]:
    return {} if activity is None else {activity: change}
