"""The planning problem: a graph of operations, the options of each, and the power of waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency._rounding import Pipeline
from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, PlannedSetting, Profile, check_coverage

# Beyond this factor, the operations' energy is lost in the rounding errors of the waiting energy.
MAX_TIMES_THE_POWER = 10_000

Choices = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A pipeline to plan.

    Attributes:
        options: The useful options of each of the graph's kinds, in the order of ``graph.kinds``.
        blocking_power_watts: Power of a GPU that waits for another stage.
    """

    graph: OperationGraph
    options: tuple[UsefulOptions, ...]
    profile: Profile
    blocking_power_watts: float

    @property
    def waiting_power_watts(self) -> float:
        """Power of all stages while they wait; the iteration's time costs this in addition."""
        return self.graph.stages * self.blocking_power_watts

    @cached_property
    def measured(self) -> tuple[Mapping[int, Option], ...]:
        """The fastest option at each frequency in MHz, of each of the graph's kinds."""
        found = (self.profile.options[kind] for kind in self.graph.kinds)
        slowest_first = (sorted(options, key=lambda option: -option.time_seconds) for options in found)
        return tuple({option.frequency_megahertz: option for option in options} for options in slowest_first)

    @cached_property
    def by_setting(self) -> tuple[Mapping[PlannedSetting, Option], ...]:
        """All options of each of the graph's kinds, by clock and knobs."""
        found = (self.profile.options[kind] for kind in self.graph.kinds)
        return tuple({option.setting: option for option in options} for options in found)

    def at_knobs(self, kind: int, knobs: tuple[str, ...]) -> Mapping[int, Option]:
        """The options of a kind with these knobs, by frequency in MHz."""
        return self._by_knobs[kind].get(knobs, {})

    @cached_property
    def _by_knobs(self) -> tuple[Mapping[tuple[str, ...], Mapping[int, Option]], ...]:
        tables: list[dict[tuple[str, ...], dict[int, Option]]] = [{} for _ in self.graph.kinds]
        for table, options in zip(tables, self.by_setting, strict=True):
            for setting, option in options.items():
                table.setdefault(setting.knobs, {})[setting.frequency_megahertz] = option
        return tuple(tables)

    @cached_property
    def first_options(self) -> npt.NDArray[np.int32]:
        """Offsets of each kind's options in the concatenated options of all kinds, shape (kinds + 1,)."""
        return np.cumsum([0, *(len(options.times_seconds) for options in self.options)]).astype(np.int32)

    @cached_property
    def option_times_seconds(self) -> Floats:
        """Times of the useful options of all kinds, concatenated as `first_options` says."""
        return np.concatenate([options.times_seconds for options in self.options])

    @cached_property
    def option_energies_joules(self) -> Floats:
        """Their energies."""
        return np.concatenate([options.energies_joules for options in self.options])

    def places_of(self, choices: Choices) -> npt.NDArray[np.int32]:
        """Place of each operation's option under these choices among the options of all kinds, shape (operations,)."""
        return np.asarray(self.first_options[self.graph.kind_of] + choices)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The operations and their useful options, as an object of the C extension."""
        return Pipeline(
            befores=self.graph.befores,
            afters=self.graph.afters,
            kind_of=self.graph.kind_of,
            first_options=self.first_options,
            times=self.option_times_seconds,
            costs=np.concatenate([options.effective_joules for options in self.options]),
        )

    def durations_of(self, choices: Choices) -> npt.NDArray[np.float64]:
        """The measured time of each operation in seconds under these choices, shape (operations,)."""
        return self.option_times_seconds[self.places_of(choices)]

    @cached_property
    def option_counts(self) -> npt.NDArray[np.int32]:
        """Number of useful options of each operation, shape (operations,)."""
        return np.diff(self.first_options)[self.graph.kind_of]

    @cached_property
    def topological_order(self) -> list[int]:
        """All operations, each after its predecessors: by the times at which they finish at the fastest options."""
        finishes = np.empty(self.graph.operations)
        self.pipeline.finish_times(self.durations_of(self.fastest), finishes)
        order: list[int] = np.argsort(finishes, kind="stable").tolist()
        return order

    @property
    def fastest(self) -> Choices:
        """Every operation at its fastest option."""
        return np.zeros(self.graph.operations, dtype=np.int16)

    @property
    def slowest(self) -> Choices:
        """Every operation at its minimum effective energy; slower options save nothing."""
        return (self.option_counts - 1).astype(np.int16)


def pipeline_problem(graph: OperationGraph, profile: Profile, blocking_power_watts: float) -> Problem:
    """Join a graph with a profile.

    Args:
        graph: The operations.
        profile: Options for every (stage, instruction) of the graph.
        blocking_power_watts: Power of a GPU that waits for another stage, 0 or more.

    Raises:
        UsageError: The power is negative, not finite, or too large compared with the options' power.
        InputError: The profile lacks a stage or an instruction, or has additional stages.
    """
    if not 0 <= blocking_power_watts < np.inf:
        raise UsageError(f"--blocking-power {blocking_power_watts:g}: must be a finite number of at least 0")
    check_coverage(profile, graph.kinds, graph.stages)
    max_power = max(
        option.energy_joules / option.time_seconds for kind in graph.kinds for option in profile.options[kind]
    )
    if blocking_power_watts > max_power * MAX_TIMES_THE_POWER:
        raise UsageError(
            f"--blocking-power {blocking_power_watts:g}: must be at most {MAX_TIMES_THE_POWER:,} times the "
            f"highest power of a measured option, {max_power:g} W"
        )
    return Problem(
        graph,
        tuple(useful_options(profile.options[kind], blocking_power_watts) for kind in graph.kinds),
        profile,
        blocking_power_watts,
    )


@dataclass(frozen=True)
class UsefulOptions:
    """The Pareto-optimal options of one (stage, instruction) in time and effective energy.

    The effective energy of an option is ``energy - blocking power * time``: its energy beyond that of a
    waiting GPU. The sum over the operations differs from the pipeline's energy by
    ``stages * blocking power * iteration time``. For each iteration time, the same plan therefore
    minimises both (docs/internals/frequency.md). All arrays have the shape (options,), except `corners`.

    Attributes:
        times_seconds: Times, strictly rising.
        effective_joules: Effective energies, strictly falling.
        corners: Indices of the options on the lower convex hull of (time, effective energy), including the
            first and the last option.
        knobs: Values of the profile's knobs, one tuple for each option.
    """

    frequencies_megahertz: npt.NDArray[np.int64]
    times_seconds: npt.NDArray[np.float64]
    effective_joules: npt.NDArray[np.float64]
    energies_joules: npt.NDArray[np.float64]
    corners: npt.NDArray[np.int64]
    knobs: tuple[tuple[str, ...], ...]


def useful_options(options: Iterable[Option], blocking_power_watts: float) -> UsefulOptions:
    """The Pareto set of the options by time and effective energy, and its lower convex hull.

    Args:
        options: At least one.
        blocking_power_watts: Power of a GPU that waits for another stage.

    Example:
        >>> found = useful_options([Option(1000, 1.0, 300), Option(900, 1.1, 290), Option(800, 1.2, 200)], 100)
        >>> found.frequencies_megahertz.tolist(), found.corners.tolist()
        ([1000, 900, 800], [0, 2])
    """
    by_time = sorted(
        options,
        key=lambda option: (
            option.time_seconds,
            option.energy_joules - blocking_power_watts * option.time_seconds,
            option.frequency_megahertz,
            option.knobs,
        ),
    )
    useful: list[Option] = []
    effective: list[float] = []
    for option in by_time:
        value = option.energy_joules - blocking_power_watts * option.time_seconds
        if not useful or (value < effective[-1] and option.time_seconds > useful[-1].time_seconds):
            useful.append(option)
            effective.append(value)
    times = np.array([option.time_seconds for option in useful])
    costs = np.array(effective)
    return UsefulOptions(
        np.array([option.frequency_megahertz for option in useful], dtype=np.int64),
        times,
        costs,
        np.array([option.energy_joules for option in useful]),
        _lower_hull(times, costs),
        tuple(option.knobs for option in useful),
    )


def _lower_hull(times: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Lower convex hull of points in order of time, by Andrew's monotone chain."""
    hull: list[int] = []
    for point in range(len(times)):
        while len(hull) > 1:
            first, middle = hull[-2:]
            rise = (costs[middle] - costs[first]) * (times[point] - times[first])
            if rise < (costs[point] - costs[first]) * (times[middle] - times[first]):
                break
            hull.pop()
        hull.append(point)
    return np.array(hull, dtype=np.int64)
