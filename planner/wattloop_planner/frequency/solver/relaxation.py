"""The continuous relaxation: every breakpoint of the frontier, by parametric flow (docs/internals/frequency.md)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency._parametric_flow import ParametricFlow
from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem, UsefulOptions

Integers = npt.NDArray[np.int64]
# The capacity of an unbounded arc.
UNLIMITED = 2**61 - 1
# Upper bounds of the longest path in units of time, and of the sum of slopes in units of power.
TIME_UNITS = 2.0**52
POWER_UNITS = 2.0**60
# Breakpoints per call of the C extension; a small number keeps the reaction to Ctrl-C fast.
BREAKPOINTS_PER_CALL = 512


def _parametric_flow(
    graph: OperationGraph, lengths: Sequence[Integers], capacities: Sequence[Integers]
) -> ParametricFlow:
    """The flow through the graph with its operations as arcs between events.

    An event is the end of some operations and the start of others. If an operation's end has one
    successor, or a start one predecessor, both are one event: a later end, or an earlier start, costs
    nothing (docs/internals/frequency.md).
    """
    count = graph.operations
    after_count = np.bincount(graph.befores, minlength=count)
    before_count = np.bincount(graph.afters, minlength=count)
    together = (after_count[graph.befores] == 1) | (before_count[graph.afters] == 1)
    operations = np.arange(count)
    first, last = operations[before_count == 0], operations[after_count == 0]
    # Starts are 0 … n - 1, ends n … 2n - 1, then the source and the sink.
    joined_from = np.concatenate([graph.befores[together] + count, first, last + count])
    joined_to = np.concatenate(
        [graph.afters[together], np.full(len(first), 2 * count), np.full(len(last), 2 * count + 1)]
    )
    events, event_of = connected_components(2 * count + 2, joined_from, joined_to)
    apart = ~together
    tails = np.concatenate([event_of[:count], event_of[graph.befores[apart] + count]]).astype(np.int32)
    heads = np.concatenate([event_of[count : 2 * count], event_of[graph.afters[apart]]]).astype(np.int32)
    # The precedences form an additional kind, with one corner of length 0.
    all_lengths = [*lengths, np.zeros(1, dtype=np.int64)]
    all_capacities = [*capacities, np.full(1, UNLIMITED, dtype=np.int64)]
    kind_of = np.concatenate([graph.kind_of, np.full(len(tails) - count, len(lengths), dtype=np.int32)])
    sizes = np.array([len(pool) for pool in all_lengths])
    starts = np.cumsum(sizes) - sizes
    counts = sizes[kind_of]
    first_points = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    places = np.arange(first_points[-1]) - np.repeat(first_points[:-1] - starts[kind_of], counts)
    return ParametricFlow(
        nodes=events,
        source=int(event_of[2 * count]),
        sink=int(event_of[2 * count + 1]),
        tails=tails,
        heads=heads,
        first_points=first_points,
        lengths=np.concatenate(all_lengths)[places],
        capacities=np.concatenate(all_capacities)[places],
    )


def connected_components(size: int, one: Integers, other: Integers) -> tuple[int, Integers]:
    """The connected components of an undirected graph, numbered in the order of their lowest nodes.

    Each component is a tree whose root is its lowest node. Each round attaches the higher root of the two
    ends of an edge to the lower root, and then makes every node a child of its root. SciPy's function is
    not used, because its import takes longer than most plans.

    Args:
        size: Number of nodes, 0 to size - 1.
        one: First end of each edge, shape (edges,).
        other: Second end of each edge, shape (edges,).

    Returns:
        The number of components, and the component of each node, shape (size,).

    Example:
        >>> connected_components(5, np.array([3, 4]), np.array([1, 0]))
        (3, array([0, 1, 2, 1, 0]))
    """
    parent = np.arange(size)
    while True:
        low, high = np.minimum(parent[one], parent[other]), np.maximum(parent[one], parent[other])
        apart = low != high
        if not apart.any():
            break
        np.minimum.at(parent, high[apart], low[apart])
        while (parent[parent] != parent).any():
            parent = parent[parent]
    (roots,) = np.nonzero(parent == np.arange(size))
    return len(roots), np.searchsorted(roots, parent)


@dataclass(frozen=True)
class Frontier:
    """The minimum energy of the relaxation for each time: convex and piecewise linear.

    Attributes:
        times_seconds: Times of the breakpoints, falling, shape (breakpoints,).
        effective_joules: Minimum sum of effective energies at each breakpoint, rising, shape
            (breakpoints,).
    """

    times_seconds: Floats
    effective_joules: Floats
    waiting_power_watts: float

    @cached_property
    def energies_joules(self) -> Floats:
        """Energy of the iteration at each breakpoint, shape (breakpoints,)."""
        return self.effective_joules + self.waiting_power_watts * self.times_seconds

    def bound_joules(self, time_seconds: npt.ArrayLike) -> Floats:
        """Lower bound of the energy of every plan. Time beyond the slowest breakpoint is waiting.

        Args:
            time_seconds: Times, at least that of the fastest breakpoint; any shape.

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
        """Time beyond which slower operations save nothing."""
        return float(self.times_seconds[0])

    @property
    def min_energy_time_seconds(self) -> float:
        """Time of the breakpoint of minimum energy, including waiting."""
        return float(self.times_seconds[int(np.argmin(self.energies_joules))])


class Segment(NamedTuple):
    """A linear piece of the frontier, valid until the walk continues.

    Attributes:
        fast_seconds: Time of the fast end; equal to the slow end for the first, empty segment.
        fast_effective_joules: Minimum sum of effective energies at the fast end.
        price_watts: Increase of the effective energy per second saved.
        passed: Number of multiples of the walk's spacing within the segment; 1 if every segment is
            requested.
        durations_at: Returns the durations, shape (operations,), of one or several optimal relaxed
            schedules for a time between both ends. Call it before the walk continues.
    """

    slow_seconds: float
    fast_seconds: float
    fast_effective_joules: float
    price_watts: float
    passed: int
    durations_at: Callable[[float], list[Floats]]


class Walk(Protocol):
    """A walk along a frontier from the slowest useful time to the fastest."""

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """Yield an empty segment at the slowest time, then linear pieces.

        Args:
            spacing: Yield only the pieces that contain a multiple of this distance, and the last piece; 0:
                all pieces. The distance is the sum over the pieces of the saved time times the square
                root of the price.
        """
        ...

    @property
    def frontier(self) -> Frontier:
        """The complete frontier, after the walk."""
        ...


class Relaxation:
    """The relaxation of a problem: a walk from the slowest useful time to the fastest.

    Iterating over `segments` does the work; afterwards `frontier` is complete.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        slowest = np.array([options.times_seconds[-1] for options in problem.options])[problem.graph.kind_of]
        longest = problem.pipeline.longest_path(slowest)
        # Powers of two, so that scaling is exact.
        self._time_unit = 2.0 ** np.ceil(np.log2(longest / TIME_UNITS))
        slopes = [_slopes(options, self._time_unit) for options in problem.options]
        steepest = np.array([float(slope[0]) if len(slope) else 0.0 for _, slope in slopes])[problem.graph.kind_of]
        self._power_unit = 2.0 ** np.ceil(np.log2(max(float(steepest.sum()), 1e-300) / POWER_UNITS))
        lengths, capacities = zip(*(_corners(*found, self._power_unit) for found in slopes), strict=True)
        self._flow = _parametric_flow(problem.graph, lengths, capacities)
        self._times: list[Floats] = []
        self._effective: list[Floats] = []

    def segments(self, spacing: float = 0.0) -> Iterator[Segment]:
        """See `Walk.segments`."""
        flow, unit = self._flow, self._time_unit
        step = spacing / (unit * math.sqrt(self._power_unit))
        capacity = BREAKPOINTS_PER_CALL if spacing else 1
        times, rises = np.empty(capacity, dtype=np.int64), np.empty(capacity)
        slowest = np.array([options.effective_joules[-1] for options in self._problem.options])
        min_effective = float(np.sum(slowest * np.bincount(self._problem.graph.kind_of, minlength=len(slowest))))
        fast, steps, passed = flow.time, 0, 1
        self._record([fast * unit], [min_effective])
        segment = Segment(fast * unit, fast * unit, min_effective, 0.0, 0, self._durations_at)
        yield segment
        while count := flow.advance((steps + 1) * step, times, rises):
            slow, fast = int(times[count - 2]) if count > 1 else fast, flow.time
            effective = min_effective + rises[:count] * (unit * self._power_unit)
            self._record(times[:count] * unit, effective)
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

    def _record(self, times: npt.ArrayLike, effective: npt.ArrayLike) -> None:
        self._times.append(np.asarray(times))
        self._effective.append(np.asarray(effective))

    @property
    def frontier(self) -> Frontier:
        """The breakpoints walked so far."""
        return Frontier(np.concatenate(self._times), np.concatenate(self._effective), self._problem.waiting_power_watts)


def relax(problem: Problem) -> Frontier:
    """The complete frontier of a problem's relaxation.

    Example:
        See `wattloop_planner.frequency`.
    """
    relaxation = Relaxation(problem)
    for _ in relaxation.segments(math.inf):
        pass
    return relaxation.frontier


def _slopes(options: UsefulOptions, time_unit: float) -> tuple[Integers, Floats]:
    """The corners of an operation's cost in integer units of time, and the slopes between them in watts."""
    times = options.times_seconds[options.corners]
    costs = options.effective_joules[options.corners]
    lengths = np.round(times / time_unit).astype(np.int64)
    # Of corners within one unit of time, the last is the cheapest.
    distinct = np.append(np.diff(lengths) > 0, True)
    return lengths[distinct], -np.diff(costs[distinct]) / np.diff(times[distinct])


def _corners(lengths: Integers, slopes: Floats, power_unit: float) -> tuple[Integers, Integers]:
    """The corners at which the slope changes, and the changes in integer units of power."""
    steepness = np.append(np.round(slopes / power_unit), 0).astype(np.int64)
    capacities = np.concatenate([[UNLIMITED], -np.diff(steepness)]).astype(np.int64)
    changes = capacities > 0
    return lengths[changes], capacities[changes]
