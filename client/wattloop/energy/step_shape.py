"""How energy is distributed within a step of the counter: three models, and how well each predicts known edges."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattloop.energy.power_history import PowerHistory

# A power sensor reports the power of a moment ago. The best of these lags is taken.
SENSOR_LAGS_SECONDS = (0.0, 0.02, 0.04, 0.07)
# Weights of the prediction errors of the two edges of a step, of the next two, and of all others: a
# single change of power affects its neighbours, a restless load affects all.
WEIGHTS = (1.0, 0.25, 0.06)
# A model other than the straight line must predict so much better, since the best of several models
# is best by chance too.
ADVANTAGE = 0.7
# Of the scatter of power readings that the counter does not show. A load that repeats faster than the
# counter advances, or in time with it, leaves no trace in its edges.
HIDDEN_SHARE = 0.3


@dataclass(frozen=True)
class StepEdges:
    """Consecutive edges around a step, all at distinct times.

    Attributes:
        times_seconds: Their times, in order.
        joules: The energy used until each.
    """

    times_seconds: Sequence[float]
    joules: Sequence[float]

    def power(self, first: int, last: int) -> float:
        """Mean power between two edges."""
        return (self.joules[last] - self.joules[first]) / (self.times_seconds[last] - self.times_seconds[first])


# The energy from edge `first` until a moment, which is before edge `last`.
_Model = Callable[[StepEdges, int, int, float], float]


def _line(edges: StepEdges, first: int, last: int, moment: float) -> float:
    return edges.power(first, last) * (moment - edges.times_seconds[first])


def _corner(edges: StepEdges, first: int, last: int, moment: float) -> float:
    """One change of power within the step, from the power before it to the power after it.

    A. Harten, "ENO schemes with subcell resolution", Journal of Computational Physics 83 (1989): the lines of both
    neighbours meet at the change. Where they do not meet within the step, the result is the straight line.
    """
    if first == 0 or last == len(edges.times_seconds) - 1:
        return _line(edges, first, last, moment)
    before, within, after = edges.power(first - 1, first), edges.power(first, last), edges.power(last, last + 1)
    if not min(before, after) < within < max(before, after):
        return _line(edges, first, last, moment)
    from_left = before * (moment - edges.times_seconds[first])
    from_right = edges.joules[last] - edges.joules[first] - after * (edges.times_seconds[last] - moment)
    return max(from_left, from_right) if after > before else min(from_left, from_right)


def _sensor(history: PowerHistory, lag: float) -> _Model:
    def energy(edges: StepEdges, first: int, last: int, moment: float) -> float:
        begin, end = edges.times_seconds[first] + lag, edges.times_seconds[last] + lag
        if not history.begin_seconds <= begin <= end <= history.end_seconds:
            return _line(edges, first, last, moment)
        start = history.joules_at(begin)
        total = history.joules_at(end) - start
        if total <= 0:
            return _line(edges, first, last, moment)
        part = (history.joules_at(moment + lag) - start) / total
        return part * (edges.joules[last] - edges.joules[first])

    return energy


class StepShape:
    """The energy within one step, by the model that predicts the surrounding edges best.

    A model is tested on each surrounding edge: what does it predict from the edges before and after
    it? Its errors also give the uncertainty. If power varies at random, energy around the straight
    line is a Brownian bridge, whose variance at a fraction f of a step of length L is proportional to
    L·f·(1−f). The test is such a bridge of two steps, at its middle.

    Args:
        edges: The step's edges and up to eight on each side.
        first: Index of the step's first edge among them.
        power: Power readings at the same time.
    """

    def __init__(self, edges: StepEdges, first: int, power: PowerHistory) -> None:
        self._edges = edges
        self._first = first
        models: list[_Model] = [_line, _corner]
        if len(power):
            models += [_sensor(power, lag) for lag in SENSOR_LAGS_SECONDS]
        errors = [self._prediction_error(model) for model in models]
        best = min(range(len(models)), key=errors.__getitem__)
        if errors[best] > ADVANTAGE * errors[0]:
            best = 0
        self._model = models[best]
        length = edges.times_seconds[first + 1] - edges.times_seconds[first]
        hidden = HIDDEN_SHARE * _scatter(edges, first, power) * length / math.sqrt(2)
        self._error_joules = math.hypot(errors[best], hidden)

    def joules_until(self, moment_seconds: float) -> float:
        """Energy from the step's first edge until a moment within the step."""
        return self._model(self._edges, self._first, self._first + 1, moment_seconds)

    def deviation_joules(self, fraction: float) -> float:
        """Standard deviation of the energy of a part of the step, given the part's fraction of the step."""
        return self._error_joules * math.sqrt(max(2 * fraction * (1 - fraction), 0.0))

    def _prediction_error(self, model: _Model) -> float:
        """Weighted root mean square of the errors at the edges around the step."""
        squares, total = 0.0, 0.0
        edges = self._edges
        for index in range(1, len(edges.times_seconds) - 1):
            distance = min(abs(index - self._first), abs(index - self._first - 1))
            weight = WEIGHTS[min(distance, len(WEIGHTS) - 1)]
            known = edges.joules[index] - edges.joules[index - 1]
            predicted = model(_without(edges, index), index - 1, index, edges.times_seconds[index])
            squares += weight * (predicted - known) ** 2
            total += weight
        return math.sqrt(squares / total) if total else math.inf


def _scatter(edges: StepEdges, first: int, power: PowerHistory) -> float:
    """Standard deviation, in watts, of the power readings around the mean power of their steps, weighted."""
    squares, total, index = 0.0, 0.0, 0
    if not len(power):
        return 0.0
    for moment, watts in power.between(edges.times_seconds[0], edges.times_seconds[-1]):
        while index < len(edges.times_seconds) - 2 and moment >= edges.times_seconds[index + 1]:
            index += 1
        weight = WEIGHTS[min(abs(index - first), len(WEIGHTS) - 1)]
        squares += weight * (watts - edges.power(index, index + 1)) ** 2
        total += weight
    return math.sqrt(squares / total) if total else 0.0


def _without(edges: StepEdges, index: int) -> StepEdges:
    times, joules = list(edges.times_seconds), list(edges.joules)
    del times[index], joules[index]
    return StepEdges(times, joules)
