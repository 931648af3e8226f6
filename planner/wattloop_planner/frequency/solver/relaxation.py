"""The continuous relaxation: every breakpoint of the time-energy frontier, by parametric flow (docs/frequency.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.options import UsefulOptions
from wattloop_planner.frequency.pipeline.problem import Floats, Problem
from wattloop_planner.frequency.solver.event_network import UNLIMITED, EventNetwork

# The longest path takes up to this many units of time, and the slopes add up to this many units of power.
TIME_UNITS = 2.0**52
POWER_UNITS = 2.0**60
# Breakpoints walked in one call of the compiled code: few enough that Ctrl-C is heard soon.
BREAKPOINTS_PER_CALL = 512


@dataclass(frozen=True)
class Frontier:
    """The least energy of the relaxation at every time: convex, piecewise linear.

    Attributes:
        times_seconds: Times of the breakpoints, falling, shape (breakpoints,).
        effective_joules: Least sum of effective energies at each, rising, shape (breakpoints,).
        waiting_power_watts: Stages times blocking power.
    """

    times_seconds: Floats
    effective_joules: Floats
    waiting_power_watts: float

    @cached_property
    def energies_joules(self) -> Floats:
        """Energy of the iteration at each breakpoint, shape (breakpoints,)."""
        return self.effective_joules + self.waiting_power_watts * self.times_seconds

    def bound_joules(self, time_seconds: npt.ArrayLike) -> Floats:
        """No plan takes less energy in this time. Beyond the slowest breakpoint all further time is waiting.

        Args:
            time_seconds: Times of at least the fastest breakpoint's, any shape.

        Returns:
            Energies in joules, of the same shape.
        """
        times = np.asarray(time_seconds, dtype=np.float64)
        effective = np.interp(times, self.times_seconds[::-1], self.effective_joules[::-1])
        return effective + self.waiting_power_watts * times

    @property
    def min_time_seconds(self) -> float:
        """Time of the fastest iteration."""
        return float(self.times_seconds[-1])

    @property
    def max_time_seconds(self) -> float:
        """Time beyond which nothing more is saved but by waiting."""
        return float(self.times_seconds[0])

    @property
    def min_energy_time_seconds(self) -> float:
        """Time of the breakpoint of least energy, waiting included."""
        return float(self.times_seconds[int(np.argmin(self.energies_joules))])


class Segment(NamedTuple):
    """A straight piece of the frontier, while the relaxation's walk stands on it.

    Attributes:
        slow_seconds: Time of its slow end.
        fast_seconds: Time of its fast end; equal to the slow end for the first, empty segment.
        fast_effective_joules: Least sum of effective energies at the fast end.
        price_watts: By how much the effective energy rises for each second less.
        passed: How many multiples of the walk's spacing are passed on it; 1 where every piece is wanted.
        durations_at: The durations, shape (operations,), of one or several optimal relaxed schedules of a time between
            the two ends. To be called before the walk goes on.
    """

    slow_seconds: float
    fast_seconds: float
    fast_effective_joules: float
    price_watts: float
    passed: int
    durations_at: Callable[[float], list[Floats]]


class Walk(Protocol):
    """A frontier that is walked from the slowest useful time to the fastest."""

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """First an empty segment at the slowest time, then straight pieces.

        Args:
            spacing: Only the pieces on which a multiple of this is passed, and the last one, are wanted; 0: all. The
                distance walked is the sum of the pieces' falls of time, each times the square root of its price.
        """
        ...

    @property
    def frontier(self) -> Frontier:
        """The whole frontier, once it has been walked."""
        ...


class Relaxation:
    """The relaxation of a problem, walked from the slowest useful time to the fastest.

    The work is done while `segments` is iterated; afterwards `frontier` is complete.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        network = EventNetwork(problem.graph)
        slowest = np.array([options.times_seconds[-1] for options in problem.options])[problem.graph.kind_of]
        most = problem.pipeline.longest_path(slowest)
        # Powers of two, so that scaling loses nothing by itself.
        self._time_unit = 2.0 ** np.ceil(np.log2(most / TIME_UNITS))
        slopes = [_slopes(options, self._time_unit) for options in problem.options]
        steepest = np.array([float(slope[0]) if len(slope) else 0.0 for _, slope in slopes])[problem.graph.kind_of]
        self._power_unit = 2.0 ** np.ceil(np.log2(max(float(steepest.sum()), 1e-300) / POWER_UNITS))
        lengths, capacities = zip(*(_corners(*found, self._power_unit) for found in slopes), strict=True)
        self._flow = network.flow(problem.graph, lengths, capacities)
        self._times: list[Floats] = []
        self._effective: list[Floats] = []

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """Walk the frontier: first an empty segment at the slowest time, then straight pieces; see `Walk`."""
        flow, unit = self._flow, self._time_unit
        step = spacing / (unit * math.sqrt(self._power_unit))
        most = BREAKPOINTS_PER_CALL if spacing else 1
        times, rises = np.empty(most, dtype=np.int64), np.empty(most)
        slowest = np.array([options.effective_joules[-1] for options in self._problem.options])
        least = float(np.sum(slowest * np.bincount(self._problem.graph.kind_of, minlength=len(slowest))))
        fast, steps, passed = flow.time, 0, 1
        self._note([fast * unit], [least])
        segment = Segment(fast * unit, fast * unit, least, 0.0, 0, self._durations_at)
        yield segment
        while count := flow.advance((steps + 1) * step, times, rises):
            slow, fast = int(times[count - 2]) if count > 1 else fast, flow.time
            effective = least + rises[:count] * (unit * self._power_unit)
            self._note(times[:count] * unit, effective)
            steps_before, steps = steps, math.floor(flow.spread / step) if step else steps + 1
            passed = steps - steps_before
            price = flow.flow * self._power_unit
            segment = Segment(slow * unit, fast * unit, float(effective[-1]), price, passed, self._durations_at)
            if passed:
                yield segment
        if not passed:
            yield segment

    def _durations_at(self, time_seconds: float) -> list[Floats]:
        time = min(max(round(time_seconds / self._time_unit), self._flow.time), self._flow.previous_time)
        durations = np.empty(self._problem.graph.operations)
        self._flow.durations(time, self._time_unit, durations)
        return [durations]

    def _note(self, times: npt.ArrayLike, effective: npt.ArrayLike) -> None:
        self._times.append(np.asarray(times))
        self._effective.append(np.asarray(effective))

    @property
    def frontier(self) -> Frontier:
        """The breakpoints walked so far."""
        return Frontier(np.concatenate(self._times), np.concatenate(self._effective), self._problem.waiting_power_watts)


def relax(problem: Problem) -> Frontier:
    """The whole frontier of a problem's relaxation.

    Example:
        See `wattloop_planner.frequency`.
    """
    relaxation = Relaxation(problem)
    for _ in relaxation.segments(math.inf):
        pass
    return relaxation.frontier


def _slopes(options: UsefulOptions, time_unit: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The corners of an operation's cost in whole units of time, and the steepness between them in watts."""
    times = options.times_seconds[options.corners]
    costs = options.effective_joules[options.corners]
    lengths = np.round(times / time_unit).astype(np.int64)
    # Times that differ by less than a unit are one time; the cheapest, the last of them, counts.
    kept = np.append(np.diff(lengths) > 0, True)
    return lengths[kept], -np.diff(costs[kept]) / np.diff(times[kept])


def _corners(
    lengths: npt.NDArray[np.int64], slopes: Floats, power_unit: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The corners at which the steepness changes, and by how much, in whole units of power."""
    steepness = np.append(np.round(slopes / power_unit), 0).astype(np.int64)
    capacities = np.concatenate([[UNLIMITED], -np.diff(steepness)]).astype(np.int64)
    kept = capacities > 0
    return lengths[kept], capacities[kept]
