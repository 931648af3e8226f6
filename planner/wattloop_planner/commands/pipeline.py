"""`wattloop pipeline`: analyses, compares and emulates pipelines that run under frequency plans."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop_planner.commands.pipeline_inputs import read_problem
from wattloop_planner.frequency.baselines import max_frequency
from wattloop_planner.frequency.clock_groups import GroupedPlan, best_grouping
from wattloop_planner.frequency.emulation import Conditions, Emulation
from wattloop_planner.frequency.files.plan_file import read_plan, write_plan
from wattloop_planner.frequency.files.recorded_run_file import read_runs
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, evaluate, planned_options
from wattloop_planner.frequency.recorded_runs import RunSummary, summarise


def run(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop pipeline``."""
    actions = {"analyze": _analyze, "compare": _compare, "emulate": _emulate}
    return actions[arguments.action](arguments)


def _analyze(arguments: argparse.Namespace) -> int:
    found = _summaries(arguments.folder, arguments.warm_up)
    rows = [_row(summary, found[0]) for summary in found]
    if arguments.format == "json":
        documents = [
            row | {"instructions": {name: asdict(mean) for name, mean in summary.instructions.items()}}
            for row, summary in zip(rows, found, strict=True)
        ]
        sys.stdout.write(json.dumps(_finite(documents), indent=2, allow_nan=False) + "\n")
    elif arguments.format == "csv":
        _write_csv(rows)
    else:
        _print_table(found)
    return 0


def _summaries(folder: str, warm_up_iterations: int) -> list[RunSummary]:
    return [summarise(found, warm_up_iterations) for found in read_runs(folder)]


def _row(summary: RunSummary, first: RunSummary) -> dict[str, float]:
    return {
        "run": summary.number,
        "ranks": summary.ranks,
        "iterations": summary.iterations,
        "time_seconds": summary.time_seconds,
        "time_error_seconds": summary.time_error_seconds,
        "energy_joules": summary.energy_joules,
        "energy_error_joules": summary.energy_error_joules,
        "average_power_watts": summary.average_power_watts,
        "slowdown_percent": summary.slowdown_percent(first),
        "energy_reduction_percent": summary.reduction_percent(first),
    }


def _finite(value: object) -> object:
    """The value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if _is_nan(value) else value


def _print_table(found: Sequence[RunSummary]) -> None:
    # Deferred, because the import takes longer than the analysis.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for name in ("run", "ranks", "iterations", "time", "energy", "power", "slowdown", "energy saved"):
        table.add_column(name, justify="right")
    for summary in found:
        table.add_row(
            str(summary.number),
            str(summary.ranks),
            str(summary.iterations),
            f"{summary.time_seconds:.4g} ± {summary.time_error_seconds:.2g} s",
            f"{summary.energy_joules:.5g} ± {summary.energy_error_joules:.2g} J",
            f"{summary.average_power_watts:.4g} W",
            f"{summary.slowdown_percent(found[0]):.2f} %",
            f"{summary.reduction_percent(found[0]):.2f} %",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _compare(arguments: argparse.Namespace) -> int:
    summaries = _summaries(arguments.runs, arguments.warm_up)
    # Deferred, because the import of matplotlib takes longer than everything else.
    from wattloop_planner.frequency.plots.comparison_figure import write_comparison  # noqa: PLC0415

    runs = {
        summary.number: Realised(summary.time_seconds, summary.energy_joules / arguments.pipelines)
        for summary in summaries
    }
    write_comparison(arguments.output, arguments.plans, runs)
    return 0


@dataclass(frozen=True)
class _EmulatedPlan:
    """A plan file under the conditions of the command."""

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


def _emulate(arguments: argparse.Namespace) -> int:
    problem = read_problem(arguments)
    conditions = _conditions(arguments, problem)
    found = [_emulated(problem, file, conditions) for file in arguments.files]
    rows = [plan.row() for plan in found]
    if arguments.format == "json":
        sys.stdout.write(json.dumps(rows, indent=2, allow_nan=False) + "\n")
    else:
        _write_csv(rows)
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


def _write_csv(rows: Sequence[Mapping[str, object]]) -> None:
    writer = csv.DictWriter(sys.stdout, tuple(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if _is_nan(value) else value for name, value in row.items()} for row in rows)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _percent_beyond(value: float, base: float) -> float:
    """How much more than a base a value is, in percent; the order of a sum's terms, which changes it, is left out."""
    return round(100 * (value / base - 1), 9) + 0.0
