"""Plans with fewer clock changes, for operations as short as a change (docs/internals/frequency.md, "Emulation")."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattloop_planner.frequency.pipeline.instruction_profiles import Option, PlannedSetting, Rows
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import planned_options
from wattloop_research.frequency.emulation import Conditions, Emulation, emulate

# Minimum durations of a group to try, in multiples of the latency of a clock change.
LATENCIES_PER_GROUP = (2, 5, 10, 20, 50, 100)
# Of plans whose times differ by less, the one of less energy is better.
SAME_TIME = 1e-3
# Sums of the same times in another order differ by less.
ROUNDING = 1e-10


@dataclass(frozen=True)
class GroupedPlan:
    """A plan for given conditions.

    Attributes:
        rows: Clocks in MHz, or settings, per stage and in execution order.
        min_group_seconds: Minimum time between two changes of a stage's clock; 0 for the plan as given.
    """

    rows: Rows
    min_group_seconds: float
    emulation: Emulation


@dataclass(frozen=True)
class Grouping:
    """What a search for groups found.

    Attributes:
        without_latency: Its emulation with clock changes that take effect at once.
        best: The plan as given or with groups, whichever is better.
    """

    planned: GroupedPlan
    without_latency: Emulation
    best: GroupedPlan


def best_grouping(problem: Problem, planned: Rows, conditions: Conditions) -> Grouping:
    """The plan as given or with groups, whichever is better under these conditions.

    Better is less energy, of the plans that take at most as long as the given one without latency. If none
    does, of those that take about the minimum time.

    Args:
        problem: The pipeline.
        planned: Clocks in MHz, or settings, per stage and in execution order.
        conditions: Latency, noise and stragglers of the emulation.
    """
    found = [GroupedPlan(planned, 0.0, emulate(problem, planned, conditions))]
    if conditions.clock_latency_seconds:
        for multiple in LATENCIES_PER_GROUP:
            seconds = multiple * conditions.clock_latency_seconds
            rows = grouped(problem, planned, seconds)
            found.append(GroupedPlan(rows, seconds, emulate(problem, rows, conditions)))
    intended = emulate(problem, planned, without_latency(conditions))
    longest = max(intended.mean.time_seconds, min(plan.emulation.mean.time_seconds for plan in found)) * (1 + SAME_TIME)
    in_time = [plan for plan in found if plan.emulation.mean.time_seconds <= longest]
    return Grouping(found[0], intended, min(in_time, key=lambda plan: plan.emulation.mean.energy_joules))


def grouped(problem: Problem, rows: Rows, min_group_seconds: float) -> list[list[PlannedSetting]]:
    """The plan with groups that last at least this long, by the operations' planned times.

    A stage remains as planned if it is shorter than one group, or if no common clock is fast enough for one.

    Raises:
        UsageError: The plan does not match the pipeline.

    Example:
        >>> from wattloop_planner.frequency import OneForwardOneBackward, Profile, pipeline_problem, schedule_graph
        >>> options = (Option(1410, 0.1, 30.0), Option(1200, 0.12, 26.0))
        >>> profile = Profile("example", {(0, "forward"): options, (0, "backward"): options})
        >>> problem = pipeline_problem(schedule_graph(OneForwardOneBackward(1, 2)), profile, 50.0)
        >>> [setting.frequency_megahertz for setting in grouped(problem, [[1200, 1200, 1410, 1200]], 0.2)[0]]
        [1200, 1200, 1410, 1410]
    """
    planned = planned_options(problem, rows)
    return [
        _grouped_stage(problem, order.tolist(), [planned[operation] for operation in order], min_group_seconds)
        for order in problem.graph.order
    ]


def _grouped_stage(
    problem: Problem, order: list[int], planned: list[Option], min_seconds: float
) -> list[PlannedSetting]:
    """The clocks of one stage: minimum effective energy over all divisions into groups of at least `min_seconds`."""
    kinds = zip(problem.graph.kind_of[order].tolist(), (option.knobs for option in planned), strict=True)
    tables = [problem.at_knobs(kind, knobs) for kind, knobs in kinds]
    clocks = sorted({clock for table in tables for clock in table})
    times, costs = _at_all_clocks(tables, clocks, problem.blocking_power_watts)
    ends = np.concatenate([[0.0], np.cumsum([option.time_seconds for option in planned])])
    best = [0.0] + [math.inf] * len(order)
    group_of: list[tuple[int, int]] = [(0, 0)] * (len(order) + 1)
    for end in range(1, len(order) + 1):
        time, cost = np.zeros(len(clocks)), np.zeros(len(clocks))
        for begin in range(end - 1, -1, -1):
            # Short groups are closer to the plan, whose operations wait for those of other stages.
            if ends[end] - ends[begin + 1] >= 2 * min_seconds:
                break
            time, cost = time + times[begin], cost + costs[begin]
            seconds = ends[end] - ends[begin]
            if seconds >= min_seconds:
                in_time = np.where(time <= seconds * (1 + ROUNDING), cost, math.inf)
                clock = int(np.argmin(in_time))
                if best[begin] + float(in_time[clock]) < best[end]:
                    best[end], group_of[end] = best[begin] + float(in_time[clock]), (begin, clock)
    if math.isinf(best[-1]):
        return [option.setting for option in planned]
    row: list[int] = []
    end = len(order)
    while end > 0:
        begin, clock = group_of[end]
        row = [clocks[clock]] * (end - begin) + row
        end = begin
    return [PlannedSetting(clock, option.knobs) for clock, option in zip(row, planned, strict=True)]


def _at_all_clocks(
    tables: Sequence[Mapping[int, Option]], clocks: list[int], blocking_power_watts: float
) -> tuple[list[Floats], list[Floats]]:
    """Time and effective energy of each operation at each clock; infinite where it was not measured."""
    times: dict[int, Floats] = {}
    costs: dict[int, Floats] = {}
    for table in {id(table): table for table in tables}.values():
        options = [table.get(clock) for clock in clocks]
        found = np.array([math.inf if option is None else option.time_seconds for option in options])
        energies = np.array([math.inf if option is None else option.energy_joules for option in options])
        times[id(table)] = found
        costs[id(table)] = energies - blocking_power_watts * np.where(np.isinf(found), 0.0, found)
    return [times[id(table)] for table in tables], [costs[id(table)] for table in tables]


def without_latency(conditions: Conditions) -> Conditions:
    """The same conditions with clock changes that take effect at once."""
    return replace(conditions, clock_latency_seconds=0.0, lead_seconds=0.0)
