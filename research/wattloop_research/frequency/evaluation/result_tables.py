"""The tables of an evaluation, as rows of CSV files and as Markdown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wattloop.files.atomic_write import open_atomic
from wattloop.files.csv_table import write_csv_table
from wattloop_planner.frequency.choice_rules import SLOWDOWNS
from wattloop_research.frequency.evaluation.emulated_models import EmulatedModel, emulated_savings
from wattloop_research.frequency.evaluation.experiments import Experiment
from wattloop_research.frequency.evaluation.measured_savings import (
    Choice,
    first_in_time,
    intrinsic_saving,
    slowest_in_time,
    straggler_saving,
)

ENVPIPE_METHOD = "envpipe"
# The published rule takes the first of the plans in time; ours the slowest as measured.
MEASURED_RULES: tuple[tuple[str, Choice], ...] = (("published", first_in_time), ("slowest", slowest_in_time))

Cells = Mapping[str, object]


@dataclass(frozen=True)
class ResultTable:
    """A table.

    Attributes:
        rows: Its rows, all with the same columns.
    """

    name: str
    title: str
    rows: tuple[Cells, ...]


def result_tables(
    experiments: Sequence[Experiment], models: Sequence[EmulatedModel], blocking_watts: Mapping[str, float]
) -> list[ResultTable]:
    """The tables that have rows.

    Args:
        experiments: What was measured.
        models: What was emulated.
        blocking_watts: Power of a GPU that waits, by GPU model.
    """
    tables = (
        ResultTable("intrinsic", "Saving without stragglers", tuple(_intrinsic(experiments))),
        ResultTable("stragglers", "Saving beside a straggler", tuple(_stragglers(experiments, blocking_watts))),
        ResultTable(
            "emulation",
            "Emulated large models",
            tuple(saving for model in models for saving in emulated_savings(model)),
        ),
    )
    return [table for table in tables if table.rows]


def _intrinsic(experiments: Sequence[Experiment]) -> Iterator[Cells]:
    for experiment in experiments:
        base = experiment.base
        if base is None:
            continue
        fastest = [("plans", experiment.plans[-1])] if experiment.plans else []
        envpipe = [(ENVPIPE_METHOD, experiment.envpipe)] if experiment.envpipe else []
        for method, plan in (*fastest, *envpipe):
            yield {
                **_key(experiment),
                "method": method,
                "run": plan.number,
                **asdict(intrinsic_saving(base, plan)),
                "time_seconds": plan.realised.time_seconds,
                "energy_joules": plan.realised.energy_joules,
                "base_time_seconds": base.realised.time_seconds,
                "base_energy_joules": base.realised.energy_joules,
                "base_source": experiment.base_source,
            }


def _stragglers(experiments: Sequence[Experiment], blocking_watts: Mapping[str, float]) -> Iterator[Cells]:
    for experiment in experiments:
        base = experiment.base
        if base is None:
            continue
        waiting_watts = blocking_watts[experiment.gpu] * experiment.workload.ranks
        rules = [(rule, choice, experiment.plans) for rule, choice in MEASURED_RULES]
        if experiment.envpipe is not None:
            rules.append((ENVPIPE_METHOD, slowest_in_time, [experiment.envpipe]))
        for slowdown in SLOWDOWNS:
            for rule, choice, plans in rules:
                found = straggler_saving(base, plans, slowdown, waiting_watts, choice)
                if found is None:
                    continue
                yield {
                    **_key(experiment),
                    "slowdown": slowdown,
                    "rule": rule,
                    "run": found.plan.number,
                    "saving_percent": found.saving_percent,
                    "plan_time_seconds": found.plan.realised.time_seconds,
                    "energy_joules": found.energy_joules,
                    "base_energy_joules": found.base_energy_joules,
                }


def _key(experiment: Experiment) -> dict[str, object]:
    workload = experiment.workload
    return {
        "gpu": experiment.gpu,
        "model": workload.model,
        "partition": workload.partition,
        "parallelism": workload.parallelism,
        "microbatch_size": workload.microbatch_size,
        "microbatches": workload.microbatches,
    }


def write_tables(folder: Path, tables: Sequence[ResultTable]) -> None:
    """Write each table as CSV, and all as ``evaluation.md``.

    Raises:
        OperationError: A file cannot be written.
    """
    for table in tables:
        with open_atomic(folder / f"{table.name}.csv") as stream:
            rows = ({name: _cell(value) for name, value in row.items()} for row in table.rows)
            write_csv_table(stream, tuple(table.rows[0]), rows)
    with open_atomic(folder / "evaluation.md") as stream:
        stream.write(markdown(tables))


def markdown(tables: Sequence[ResultTable]) -> str:
    """The tables as Markdown, with rounded figures."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: ResultTable) -> str:
    names = tuple(table.rows[0])
    numeric = [isinstance(table.rows[0][name], int | float) for name in names]
    lines = [
        f"## {table.title}",
        "",
        _line(names),
        _line("---:" if is_number else "---" for is_number in numeric),
        *(_line(_rounded(name, row[name]) for name in names) for row in table.rows),
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rounded(name: str, value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "not known"
    if not isinstance(value, float):
        return str(value)
    if name.endswith("_percent"):
        return f"{value:.1f}"
    return f"{value:.6g}"


def _cell(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
