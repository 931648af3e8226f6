"""Plans long iterations by their repeated structure: solves a few microbatches (docs/internals/frequency.md)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.schedules import Schedule
from wattloop_planner.frequency.solver.relaxation import Frontier, Relaxation, Segment, relax
from wattloop_planner.frequency.solver.repetition import Repetition
from wattloop_planner.frequency.solver.roundings import fastest_plan

# Below this number of operations, solving the complete problem exactly takes about a second.
MIN_OPERATIONS = 10_000
# Relative tolerance within which each further microbatch must change the value function equally.
GROWTH_TOLERANCE = 1e-6
# Relative tolerance within which two prices are equal except for rounding.
SAME_PRICE = 1e-7
# Number of middles, of those tried on the trial iteration, that are used for the long one.
BEST_MIDDLES = 1


@dataclass(frozen=True)
class SteadyState:
    """A short iteration that represents a long one.

    Attributes:
        trial: An iteration of twice the short length, on which middles are tried.
        repetition: Maps the short iteration to the long one.
        trial_repetition: Maps the short iteration to the trial iteration.
    """

    frontier: Frontier
    short: Problem
    short_frontier: Frontier
    trial: Problem
    repetition: Repetition
    trial_repetition: Repetition

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """Walk the frontier along that of the short iteration, which has the same prices; see `Walk`."""
        # Each breakpoint of the short frontier is optimal at the prices next to it, and corresponds to the
        # breakpoint of the long frontier that is optimal there.
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
            # Repeated, most middles take more than the minimum time; meeting it costs different amounts.
            costs = [self._cost_at_min_time(durations, middle) for middle in middles]
            best.append(int(np.argmin(costs)))
        return [self.repetition.spread(durations, middles[index]) for index in dict.fromkeys(best)]

    def _cost_at_min_time(self, durations: Floats, middle: Floats) -> float:
        """Effective energy of a plan of minimum time from this middle, on the trial iteration."""
        return fastest_plan(self.trial, self.trial_repetition.spread(durations, middle)).effective_joules

    def _trial_value(self, durations: Floats, middle: Floats, price: float) -> float:
        """Cost of a plan that repeats this middle on the trial iteration: effective energy plus price times time."""
        pipeline = self.trial.pipeline
        repeated = self.trial_repetition.spread(durations, middle)
        choices = np.empty(self.trial.graph.operations, dtype=np.int16)
        time, effective = pipeline.round(repeated, pipeline.longest_path(repeated), choices)
        return effective + price * time


def steady_state(problem: Problem) -> SteadyState | None:
    """A short iteration that represents this one.

    For each price of time, the relaxation's value (minimum of effective energy plus price times time)
    grows by the same amount for each further microbatch, if there are enough. The frontier is the
    conjugate of the value, so two short iterations give the frontier of every longer one. A third checks
    that the growth is constant.

    Returns:
        None if the iteration is not long enough, or does not repeat.
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
        if _grows_linearly(frontiers):
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
    """The prices of all linear pieces of the frontiers, rising."""
    found = np.sort(np.concatenate([_prices(frontier) for frontier in frontiers]))
    return found[np.diff(found, prepend=-1.0) > SAME_PRICE * found]


def _points(frontier: Frontier, prices: Floats) -> tuple[Floats, Floats]:
    """Time and effective energy of the optimal breakpoint at each price."""
    at = np.searchsorted(_prices(frontier), prices)
    return frontier.times_seconds[at], frontier.effective_joules[at]


def _values(frontier: Frontier, prices: Floats) -> Floats:
    """Minimum of effective energy plus price times time, for each price."""
    times, effective = _points(frontier, prices)
    return np.asarray(effective + prices * times)


def _grows_linearly(frontiers: list[Frontier]) -> bool:
    prices = _common_prices(frontiers)
    first, second, third = (_values(frontier, prices) for frontier in frontiers)
    energy = frontiers[1].energies_joules.min() - frontiers[0].energies_joules.min()
    return bool(np.all(np.abs(third - 2 * second + first) <= GROWTH_TOLERANCE * energy))


def _extrapolated(short: Frontier, longer: Frontier, repeats: int) -> Frontier:
    """The frontier whose value at each price is that of `short` plus `repeats` times the increase to `longer`."""

    def extrapolate(of_short: Floats, of_longer: Floats) -> Floats:
        return np.asarray(of_short + repeats * (of_longer - of_short))

    prices = _common_prices([short, longer])
    values = extrapolate(_values(short, prices), _values(longer, prices))
    slowest, fastest = (float(extrapolate(short.times_seconds[end], longer.times_seconds[end])) for end in (0, -1))
    # Each price gives a supporting line, effective = value - price * time; neighbours cross at breakpoints.
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
        effective = extrapolate(short.effective_joules[:1], longer.effective_joules[:1])
        return Frontier(np.array([slowest]), effective, short.waiting_power_watts)
    times = np.array([*crossings, min(fastest, crossings[-1])])
    ends = np.array([*lines, lines[-1]])
    return Frontier(times, values[ends] - prices[ends] * times, short.waiting_power_watts)
