"""`wattloop pipeline emulate`: plans in virtual time, with clock latency."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, evaluate, planned_options
from wattloop_research.command_line.pipeline_options import read_problem, write_rows
from wattloop_research.frequency.baselines import max_frequency
from wattloop_research.frequency.clock_groups import GroupedPlan, best_grouping
from wattloop_research.frequency.emulation import Conditions, Emulation
from wattloop_research.frequency.files.plan_file import read_plan, write_plan


@dataclass(frozen=True)
class _EmulatedPlan:
    file: str
    planned: Realised
    emulation: Emulation
    without_latency: Realised
    best: GroupedPlan
    shortest_operation_seconds: float

    def row(self) -> dict[str, object]:
        mean, grouped = self.emulation.mean, self.best.emulation.mean
        return {
            "file": self.file,
            "planned_time": self.planned.time_seconds,
            "planned_energy": self.planned.energy_joules,
            "time": mean.time_seconds,
            "energy": mean.energy_joules,
            "time_lost_percent": _percent_beyond(mean.time_seconds, self.without_latency.time_seconds),
            "energy_lost_percent": _percent_beyond(mean.energy_joules, self.without_latency.energy_joules),
            "clock_changes": self.emulation.clock_changes,
            "late_seconds": self.emulation.late_seconds,
            "shortest_operation": self.shortest_operation_seconds,
            "group": self.best.min_group_seconds,
            "group_time": grouped.time_seconds,
            "group_energy": grouped.energy_joules,
        }


def emulate(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop pipeline emulate``."""
    problem = read_problem(arguments)
    conditions = _conditions(arguments, problem)
    found = [_emulated(problem, file, conditions) for file in arguments.files]
    rows = [plan.row() for plan in found]
    if arguments.format == "json":
        sys.stdout.write(json.dumps(rows, indent=2, allow_nan=False) + "\n")
    else:
        write_rows(rows)
    for plan in found:
        if plan.best.min_group_seconds:
            _report_groups(plan, conditions)
    if arguments.group is not None:
        _write_groups(arguments.group, problem, found)
    return 0


def _conditions(arguments: argparse.Namespace, problem: Problem) -> Conditions:
    slowdown = arguments.straggler or 0.0
    return Conditions(
        clock_latency_seconds=arguments.clock_latency,
        lead_seconds=arguments.lead,
        noise=arguments.noise,
        slow_stages=dict(arguments.slow_stage),
        straggler_seconds=slowdown * max_frequency(problem).time_seconds,
        iterations=arguments.iterations,
        seed=arguments.seed,
    )


def _emulated(problem: Problem, file: str, conditions: Conditions) -> _EmulatedPlan:
    rows = read_plan(file, problem.graph, problem.profile.knobs)
    try:
        grouping = best_grouping(problem, rows, conditions)
        return _EmulatedPlan(
            file,
            evaluate(problem, rows),
            grouping.planned.emulation,
            grouping.without_latency.mean,
            grouping.best,
            min(option.time_seconds for option in planned_options(problem, rows)),
        )
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _report_groups(plan: _EmulatedPlan, conditions: Conditions) -> None:
    mean, grouped = plan.emulation.mean, plan.best.emulation.mean
    sys.stderr.write(
        f"{plan.file}: the shortest operation takes {plan.shortest_operation_seconds:.3g} s and a clock change "
        f"{conditions.clock_latency_seconds:.3g} s. Groups of at least {plan.best.min_group_seconds:.3g} s with one "
        f"clock take {grouped.time_seconds:.6g} s and {grouped.energy_joules:.6g} J, instead of "
        f"{mean.time_seconds:.6g} s and {mean.energy_joules:.6g} J\n"
    )


def _write_groups(folder: str, problem: Problem, found: Sequence[_EmulatedPlan]) -> None:
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationError(f"--group {folder}: cannot create: {error.strerror}; name a writable folder") from error
    for plan in found:
        if plan.best.min_group_seconds:
            mean = plan.best.emulation.mean
            comments = (
                f"groups of at least {plan.best.min_group_seconds:g} s",
                f"emulated: {mean.time_seconds:.9g} s, {mean.energy_joules:.9g} J",
            )
            with open_atomic(path / Path(plan.file).name) as stream:
                write_plan(stream, problem.graph, plan.best.rows, comments, problem.profile.knobs)


def _percent_beyond(value: float, base: float) -> float:
    """How much more than a base a value is, in percent; the order of a sum's terms, which changes it, is left out."""
    return round(100 * (value / base - 1), 9) + 0.0
