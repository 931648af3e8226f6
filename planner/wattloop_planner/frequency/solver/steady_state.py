"""Long iterations by their repeated structure: a few microbatches are solved, the rest repeats (docs/frequency.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.problem import Floats, Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.schedules import Schedule
from wattloop_planner.frequency.solver.fastest import fastest_plan
from wattloop_planner.frequency.solver.relaxation import Frontier, Relaxation, Segment, relax
from wattloop_planner.frequency.solver.repetition import Repetition

# Below this many operations the whole problem is solved, exactly, in about a second.
MIN_OPERATIONS = 10_000
# A microbatch more must change the value function by the same amount as the one before, to this relative accuracy.
LINEAR_WITHIN = 1e-6
# Prices that differ by less, relatively, are one price rounded twice.
SAME_PRICE = 1e-7
# How many of the middles tried on a trial iteration are spread over the long one.
BEST_MIDDLES = 1


@dataclass(frozen=True)
class SteadyState:
    """A short iteration that stands for a long one.

    Attributes:
        frontier: Of the long iteration's relaxation.
        short: The short iteration.
        short_frontier: Of its relaxation.
        trial: An iteration of twice its length, on which repetitions are tried before they are spread over the long.
        repetition: Of the short iteration by the long one.
        trial_repetition: Of the short iteration by the trial.
    """

    frontier: Frontier
    short: Problem
    short_frontier: Frontier
    trial: Problem
    repetition: Repetition
    trial_repetition: Repetition

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """Walk the frontier by that of the short iteration, which has the same prices; see `Walk`."""
        # Each breakpoint of the short frontier is best at the prices around it; so is one of the long frontier.
        prices = _prices(self.short_frontier)
        between = np.sqrt(prices[1:] * prices[:-1])
        around = np.concatenate([prices[:1] / 2, between, prices[-1:] * 2]) if len(prices) else np.zeros(1)
        times, effective = _points(self.frontier, around)
        falls = -np.diff(times, prepend=times[0])
        walked = np.cumsum(falls * np.sqrt(np.concatenate([[0.0], prices])))
        passed = np.diff(np.floor(walked / spacing), prepend=0.0).astype(int) if spacing else np.ones(len(times), int)
        passed[0] = 0
        slow = float(times[0])
        for number, (segment, fast, cost) in enumerate(
            zip(Relaxation(self.short).segments(), times.tolist(), effective.tolist(), strict=True)
        ):
            if passed[number] or number in (0, len(times) - 1):
                at_the_end = number == len(times) - 1
                durations_at = partial(self._durations_at, segment, slow, fast, at_the_end)
                yield Segment(slow, fast, cost, segment.price_watts, int(passed[number]), durations_at)
            slow = fast

    def _durations_at(
        self, segment: Segment, slow: float, fast: float, at_the_end: bool, time_seconds: float
    ) -> list[Floats]:
        share = (slow - time_seconds) / (slow - fast) if slow > fast else 1.0
        short_time = segment.slow_seconds + share * (segment.fast_seconds - segment.slow_seconds)
        (durations,) = segment.durations_at(short_time)
        middles = self.repetition.middles(durations)
        values = [self._trial_value(durations, middle, segment.price_watts) for middle in middles]
        best = sorted(range(len(middles)), key=values.__getitem__)[:BEST_MIDDLES]
        if at_the_end and time_seconds == fast:
            # Most middles take more than the least time once they are repeated, and differ in how much is lost without.
            costs = [self._cost_at_min_time(durations, middle) for middle in middles]
            best.append(int(np.argmin(costs)))
        return [self.repetition.spread(durations, middles[index]) for index in dict.fromkeys(best)]

    def _cost_at_min_time(self, durations: Floats, middle: Floats) -> float:
        """The effective energy of a real plan of the least time by the example of this middle."""
        return fastest_plan(self.trial, self.trial_repetition.spread(durations, middle)).effective_joules

    def _trial_value(self, durations: Floats, middle: Floats, price: float) -> float:
        """What a real plan costs that repeats this middle, time included."""
        pipeline = self.trial.pipeline
        repeated = self.trial_repetition.spread(durations, middle)
        choices = np.empty(self.trial.graph.operations, dtype=np.int16)
        time, effective = pipeline.round(repeated, pipeline.longest_path(repeated), choices)
        return effective + price * time


def steady_state(problem: Problem) -> SteadyState | None:
    """A short iteration that stands for this one; None where the iteration is not long, or does not repeat.

    For each price of time, the relaxation's value (least effective energy plus price times time) grows by the same
    amount for each further microbatch, once there are enough of them. The frontier is the value's conjugate, so two
    short iterations give the frontier of every longer one; a third checks that the growth is even.
    """
    schedule = problem.graph.schedule
    if schedule is None or problem.graph.operations < MIN_OPERATIONS:
        return None
    period = schedule.period
    length = 4 * schedule.stages
    while 4 * length < schedule.microbatches:
        count = length + (schedule.microbatches - length) % period
        problems = [_resized(problem, schedule, count + extra * period) for extra in range(3)]
        frontiers = [relax(short) for short in problems]
        if _grows_evenly(frontiers):
            short = problems[0]
            frontier = _extrapolated(frontiers[0], frontiers[1], (schedule.microbatches - count) // period)
            trial = _resized(problem, schedule, 2 * count - count % period)
            repetitions = (Repetition(graph, short.graph, period) for graph in (problem.graph, trial.graph))
            return SteadyState(frontier, short, frontiers[0], trial, *repetitions)
        length *= 2
    return None


def _resized(problem: Problem, schedule: Schedule, microbatches: int) -> Problem:
    graph = schedule_graph(replace(schedule, microbatches=microbatches))
    return pipeline_problem(graph, problem.profile, problem.blocking_power_watts)


def _prices(frontier: Frontier) -> Floats:
    return np.asarray(np.diff(frontier.effective_joules) / -np.diff(frontier.times_seconds))


def _common_prices(frontiers: list[Frontier]) -> Floats:
    """The prices of every straight piece of any of the frontiers, rising."""
    found = np.sort(np.concatenate([_prices(frontier) for frontier in frontiers]))
    return found[np.diff(found, prepend=-1.0) > SAME_PRICE * found]


def _points(frontier: Frontier, prices: Floats) -> tuple[Floats, Floats]:
    """Time and effective energy of the breakpoint that is best at each price."""
    at = np.searchsorted(_prices(frontier), prices)
    return frontier.times_seconds[at], frontier.effective_joules[at]


def _values(frontier: Frontier, prices: Floats) -> Floats:
    """Least effective energy plus price times time, for each price."""
    times, effective = _points(frontier, prices)
    return np.asarray(effective + prices * times)


def _grows_evenly(frontiers: list[Frontier]) -> bool:
    prices = _common_prices(frontiers)
    first, second, third = (_values(frontier, prices) for frontier in frontiers)
    energy = frontiers[1].energies_joules.min() - frontiers[0].energies_joules.min()
    return bool(np.all(np.abs(third - 2 * second + first) <= LINEAR_WITHIN * energy))


def _extrapolated(short: Frontier, longer: Frontier, repeats: int) -> Frontier:
    """The frontier whose value at each price is that of the short one plus so many times what the longer one adds."""

    def longest(of_short: Floats, of_longer: Floats) -> Floats:
        return np.asarray(of_short + repeats * (of_longer - of_short))

    prices = _common_prices([short, longer])
    values = longest(_values(short, prices), _values(longer, prices))
    slowest, fastest = (float(longest(short.times_seconds[end], longer.times_seconds[end])) for end in (0, -1))
    # Each price gives a line under the frontier, effective = value - price * time; neighbours cross at the breakpoints.
    lines: list[int] = []
    crossings: list[float] = []
    for line in range(len(prices)):
        crossing = slowest
        while lines:
            crossing = float((values[line] - values[lines[-1]]) / (prices[line] - prices[lines[-1]]))
            if crossing < crossings[-1]:
                break
            lines.pop()
            crossings.pop()
            crossing = slowest
        lines.append(line)
        crossings.append(crossing)
    if not lines:
        effective = longest(short.effective_joules[:1], longer.effective_joules[:1])
        return Frontier(np.array([slowest]), effective, short.waiting_power_watts)
    times = np.array([*crossings, min(fastest, crossings[-1])])
    kept = np.array([*lines, lines[-1]])
    return Frontier(times, values[kept] - prices[kept] * times, short.waiting_power_watts)
