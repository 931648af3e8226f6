"""Emulates iterations of a pipeline under a plan in virtual time (docs/internals/frequency.md, "Emulation")."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, Rows
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Realised, planned_options


@dataclass(frozen=True)
class Conditions:
    """Under what conditions a plan runs.

    Attributes:
        clock_latency_seconds: Time from the request of a clock until it is in effect.
        lead_seconds: Time by which a clock is requested before the planned end of the previous operation.
        noise: Standard deviation of the logarithm of each operation's time; its energy varies in proportion.
        slow_stages: Factors by which stages are slower than profiled, by stage.
        straggler_seconds: Time of an iteration of another pipeline, for which this one waits; 0 for none.
    """

    clock_latency_seconds: float = 0.0
    lead_seconds: float = 0.0
    noise: float = 0.0
    slow_stages: dict[int, float] = field(default_factory=dict)
    straggler_seconds: float = 0.0
    iterations: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in (
            ("--clock-latency", self.clock_latency_seconds),
            ("--lead", self.lead_seconds),
            ("--noise", self.noise),
            ("--straggler", self.straggler_seconds),
        ):
            if not 0 <= value < math.inf:
                raise UsageError(f"{name} {value:g}: must be a finite number of at least 0")
        if self.noise > 1:
            raise UsageError(f"--noise {self.noise:g}: must be at most 1")
        for stage, factor in self.slow_stages.items():
            if not 0 < factor < math.inf:
                raise UsageError(f"--slow-stage {stage}:{factor:g}: the factor must be a finite number above 0")
        if self.iterations < 1:
            raise UsageError(f"--iterations {self.iterations}: must be at least 1")


@dataclass(frozen=True)
class Emulation:
    """The emulated iterations of a plan.

    Attributes:
        times_seconds: Time of each iteration, shape (iterations,).
        energies_joules: Energy of all stages in each iteration, including waiting, shape (iterations,).
        clock_changes: Number of requested clock changes of all stages in an iteration of the plan.
        late_seconds: Mean time per iteration, over all stages, that operations ran at another clock than planned.
    """

    times_seconds: Floats
    energies_joules: Floats
    clock_changes: int
    late_seconds: float

    @property
    def mean(self) -> Realised:
        """Mean time and energy of an iteration."""
        return Realised(float(np.mean(self.times_seconds)), float(np.mean(self.energies_joules)))


def emulate(problem: Problem, rows: Rows, conditions: Conditions) -> Emulation:
    """Run iterations of a plan one after another.

    Without latency, noise and stragglers, each iteration takes the time and energy of
    `plans.evaluate`.

    Args:
        problem: The pipeline.
        rows: Clocks in MHz, or settings, per stage and in execution order. A knob takes effect at once.
        conditions: Latency, noise and stragglers.

    Raises:
        UsageError: The plan does not match the pipeline, or a slow stage does not exist.
    """
    planned = planned_options(problem, rows)
    graph = problem.graph
    if unknown := [stage for stage in conditions.slow_stages if not 0 <= stage < graph.stages]:
        raise UsageError(f"--slow-stage {unknown[0]}: must be a stage from 0 to {graph.stages - 1}")
    order = problem.topological_order
    first, before = (found.tolist() for found in graph.predecessors)
    clocks = [_StageClock(problem, planned, row.tolist(), conditions) for row in graph.order]
    stage_of = graph.stage_of.tolist()
    slowness = [conditions.slow_stages.get(stage, 1.0) for stage in range(graph.stages)]
    random = np.random.default_rng(conditions.seed)
    times, energies = np.empty(conditions.iterations), np.empty(conditions.iterations)
    begin = 0.0
    for iteration in range(conditions.iterations):
        factors = _factors(random, graph.operations, conditions.noise)
        finishes = [begin] * graph.operations
        busy, energy = [], []
        for operation in order:
            start = max((finishes[other] for other in before[first[operation] : first[operation + 1]]), default=begin)
            stage = stage_of[operation]
            end, joules = clocks[stage].execute(start, factors[operation] * slowness[stage])
            finishes[operation] = end
            busy.append(end - start)
            energy.append(joules)
        end = max(*finishes, begin + conditions.straggler_seconds)
        waited = graph.stages * (end - begin) - math.fsum(busy)
        times[iteration] = end - begin
        energies[iteration] = math.fsum(energy) + problem.blocking_power_watts * waited
        begin = end
    return Emulation(
        times,
        energies,
        sum(clock.changes_per_iteration for clock in clocks),
        sum(clock.late_seconds for clock in clocks) / conditions.iterations,
    )


def _factors(random: np.random.Generator, operations: int, noise: float) -> list[float]:
    factors: npt.NDArray[np.float64] = np.exp(random.normal(-(noise**2) / 2, noise, operations))
    return factors.tolist() if noise else [1.0] * operations


class _StageClock:
    """The GPU clock of one stage, and the stage's operations in execution order, iteration after iteration."""

    def __init__(
        self, problem: Problem, planned: Sequence[Option], order: Sequence[int], conditions: Conditions
    ) -> None:
        kinds = problem.graph.kind_of[list(order)].tolist()
        self._planned = [planned[operation] for operation in order]
        self._options: list[Mapping[int, Option]] = [
            problem.at_knobs(kind, option.knobs) for kind, option in zip(kinds, self._planned, strict=True)
        ]
        self._latency = conditions.clock_latency_seconds
        self._lead = conditions.lead_seconds
        self._next = 0
        self._clock = self._planned[0].frequency_megahertz
        self._requested = self._clock
        # Times at which requested clocks take effect: at most the change that is under way and a waiting one.
        self._changes: list[tuple[float, int]] = []
        self.late_seconds = 0.0
        self.changes_per_iteration = sum(
            option.frequency_megahertz != self._planned[index - 1].frequency_megahertz
            for index, option in enumerate(self._planned)
        )

    def execute(self, start: float, factor: float) -> tuple[float, float]:
        """Run the next operation; returns when it ends, in seconds, and its energy in joules."""
        index = self._next
        self._next = (index + 1) % len(self._planned)
        following = self._planned[self._next].frequency_megahertz
        while self._changes and self._changes[0][0] <= start:
            self._clock = self._changes.pop(0)[1]
        end, joules, late = self._progress(index, start, factor, self._changes)
        if following != self._requested:
            planned_end = start + self._planned[index].time_seconds
            requested_at = min(end, max(start, planned_end - self._lead)) if self._lead else end
            self._request(requested_at, following)
            end, joules, late = self._progress(index, start, factor, self._changes)
        self.late_seconds += late
        return end, joules

    def _request(self, now: float, clock: int) -> None:
        self._requested = clock
        under_way = [change for change in self._changes if change[0] > now][:1]
        begins = under_way[0][0] if under_way else now
        self._changes = [change for change in self._changes if change[0] <= now] + under_way
        self._changes.append((begins + self._latency, clock))

    def _progress(
        self, index: int, start: float, factor: float, changes: Sequence[tuple[float, int]]
    ) -> tuple[float, float, float]:
        """End, energy, and time at another clock than planned, of an operation that starts at `start`."""
        clock, now, remaining, joules, late = self._clock, start, 1.0, 0.0, 0.0
        planned = self._planned[index].frequency_megahertz
        for effective, next_clock in (*changes, (math.inf, 0)):
            option = self._at(index, clock)
            needed = remaining * option.time_seconds * factor
            passed = min(needed, max(effective - now, 0.0))
            share = remaining if passed == needed else passed / (option.time_seconds * factor)
            joules += share * option.energy_joules * factor
            late += passed if clock != planned else 0.0
            now += passed
            remaining -= share
            if passed == needed:
                break
            clock = next_clock
        return now, joules, late

    def _at(self, index: int, clock: int) -> Option:
        options = self._options[index]
        # A clock may have been measured for another instruction alone; then the nearest is used.
        return options[clock if clock in options else min(options, key=lambda measured: abs(measured - clock))]
