"""The rows of ``recurrences.csv`` and `wattloop history`: one for each attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import IO, Any

from wattloop.files.csv_table import write_csv_table
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.history.energy_origin import origin_of_attempt
from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate
from wattloop_planner.observations import PARAMETER_PREFIX

Cell = int | float | str | None


@dataclass(frozen=True)
class RecurrenceRow:
    """One attempt. The attributes are the columns, in this order.

    Attributes:
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        batch_size: The chosen batch size.
        power_limit_watts: The power limit of each GPU at the end; None if there was none.
        epochs: Epochs run.
        outcome: Its result: reached, stopped, exhausted, plateaued, diverged, crashed, start-failed, script-error,
            hung, deadline-exceeded, missing-metric, disrupted, cancelled or name-conflict.
        energy_joules: Energy of all its GPUs; None if it is not known.
        time_seconds: Its duration; None if it is not known.
        cost_joules: Its cost, η·energy + (1−η)·power·time, which is no energy; None if it never had a GPU, or if its
            energy is not known.
        metric: The last value of the target's metric; None if none was reported.
        default_cost_joules: Expected cost of a recurrence in the default configuration, the same in every row.
            None in rows before an epoch of it changed its cost, and before the default batch size has reached the
            target.
        low_default_cost_joules: Lower end of the interval of 90 % of such recurrences.
        high_default_cost_joules: Upper end of it.
        cost_saving_percent: What its recurrence cost less than the default, in percent of it; in the row of the last
            attempt. None for a default run, if the target was missed, and until it is known.
        low_cost_saving_percent: Lower end of its interval of 90 %.
        high_cost_saving_percent: Upper end of it.
        purpose: What its recurrence ran for: baseline, learning or chosen. None if there is no comparison.
        reason: Why the batch size was chosen.
        image_digest: Digest of the image that ran; None if it is not known.
        energy_origin: What the energy was measured on: shared if others used the GPUs, too, so that it is an upper
            bound; else in a local run gpu, simulated, simulated-load (with a declared load), or simulated-idle if the
            training put no load on the simulated GPUs; None if it is not known.
        clocks: What the ranks of a pipeline did at the end: free, profile or plan; this and the next are None for an
            attempt whose ranks did not register as a pipeline.
        frequency_plan: Name of its FrequencyPlan; None if there was none.
        planned_iteration_seconds: Planned time of an iteration.
        planned_iteration_joules: Planned energy of an iteration of one pipeline.
        realised_iteration_seconds: Realised time of an iteration of the slowest rank.
        realised_iteration_joules: Realised energy of an iteration of one pipeline.
        plan_saving_percent: Energy that the plan saved, measured against free clocks; None while it is not known.
        plan_slowdown_percent: Time that it cost, measured likewise.
        plan_saving_error_percent: Standard error of the saving, in points of percent.
        plan_slowdown_error_percent: Standard error of the slowdown, in points of percent.
        planned_saving_percent: The saving as planned, against maximum clocks.
        planned_slowdown_percent: The slowdown as planned, against maximum clocks.
        probe_trials: Number of trials of its probes; this and the next are None for an attempt that did not probe.
        probe_energy_joules: Part of its energy that these trials used.
        probe_time_seconds: Part of its time that they used.
        resumed: 1 if it went on from what an earlier attempt had trained, else 0; None if that is not known.
        parameters: Values of the further parameters by name; a column ``param:NAME`` each, after the
            others.
    """

    recurrence: int
    attempt: int
    batch_size: int
    power_limit_watts: float | None
    epochs: float
    outcome: str
    energy_joules: float | None
    time_seconds: float | None
    cost_joules: float | None
    metric: float | None
    default_cost_joules: float | None
    low_default_cost_joules: float | None
    high_default_cost_joules: float | None
    cost_saving_percent: float | None
    low_cost_saving_percent: float | None
    high_cost_saving_percent: float | None
    purpose: str | None
    reason: str
    image_digest: str | None = None
    energy_origin: str | None = None
    clocks: str | None = None
    frequency_plan: str | None = None
    planned_iteration_seconds: float | None = None
    planned_iteration_joules: float | None = None
    realised_iteration_seconds: float | None = None
    realised_iteration_joules: float | None = None
    plan_saving_percent: float | None = None
    plan_slowdown_percent: float | None = None
    plan_saving_error_percent: float | None = None
    plan_slowdown_error_percent: float | None = None
    planned_saving_percent: float | None = None
    planned_slowdown_percent: float | None = None
    probe_trials: int | None = None
    probe_energy_joules: float | None = None
    probe_time_seconds: float | None = None
    resumed: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, tuple(sorted(self.parameters.items())))

    @property
    def saving(self) -> Estimate | None:
        """The saving in percent with its interval."""
        return Estimate.if_known(self.cost_saving_percent, self.low_cost_saving_percent, self.high_cost_saving_percent)

    @property
    def reached(self) -> bool:
        """Whether the attempt reached the target."""
        return self.outcome == "reached"


COLUMNS = tuple(each.name for each in fields(RecurrenceRow) if each.name != "parameters")
# The comparison of a recurrence with the default configuration.
COMPARISON = frozenset(
    {"purpose"}
    | {f"{end}{name}" for end in ("low_", "", "high_") for name in ("default_cost_joules", "cost_saving_percent")}
)


@once_per_history
def rows_of(history: JobHistory) -> tuple[RecurrenceRow, ...]:
    """The rows of a history, ordered by (recurrence, attempt)."""
    savings = history.savings
    purposes = {each.index: each.purpose.value for each in savings.recurrences if savings.default is not None}
    last = {record.recurrence: record.attempt for record in history.records}
    return tuple(
        RecurrenceRow(
            recurrence=record.recurrence,
            attempt=record.attempt,
            batch_size=record.batch_size,
            power_limit_watts=record.power_limit_watts,
            epochs=record.epochs,
            outcome=outcome_text(record.result),
            energy_joules=record.energy_joules or None,
            time_seconds=record.time_seconds or None,
            cost_joules=None if history.eta is None else attempt_cost_joules(record, history.eta),
            metric=record.metric,
            **_bounded(
                ("low_default_cost_joules", "default_cost_joules", "high_default_cost_joules"),
                savings.default.of_run if savings.default and record.recurrence in purposes else None,
            ),
            **_bounded(
                ("low_cost_saving_percent", "cost_saving_percent", "high_cost_saving_percent"),
                savings.of(record.recurrence) if record.attempt == last[record.recurrence] else None,
            ),
            purpose=purposes.get(record.recurrence),
            reason=record.reason,
            image_digest=record.image_digest,
            energy_origin=origin_of_attempt(record, history.energy_origin),
            parameters=dict(record.parameters),
            probe_trials=record.probe_trials,
            probe_energy_joules=record.probe_energy_joules,
            probe_time_seconds=record.probe_time_seconds,
            resumed=None if record.resumed is None else int(record.resumed),
            **_pipeline_cells(record.pipeline),
        )
        for record in history.records
    )


def write_csv(stream: IO[str], rows: Iterable[RecurrenceRow]) -> None:
    """Write the rows as CSV.

    The file has a header, numbers with ten significant digits, and empty cells for missing values.
    """
    rows = list(rows)
    names = sorted({name for row in rows for name in row.parameters})
    cells = (
        (*(cell_text(getattr(row, column)) for column in COLUMNS), *(row.parameters.get(name, "") for name in names))
        for row in rows
    )
    write_csv_table(stream, (*COLUMNS, *(f"{PARAMETER_PREFIX}{name}" for name in names)), cells)


def write_json(stream: IO[str], rows: Iterable[RecurrenceRow]) -> None:
    """Write the rows as a JSON list of objects with the same names and digits.

    Missing values are null.
    """
    json.dump([json_object(row) for row in rows], stream, indent=2)
    stream.write("\n")


def json_object(row: RecurrenceRow) -> dict[str, Cell]:
    """A row as a JSON object; each parameter is a member ``param:NAME``."""
    return {column: _rounded(getattr(row, column)) for column in COLUMNS} | _json_parameters(row)


def measured_json_object(row: RecurrenceRow) -> dict[str, Cell]:
    """What was measured of a row as a JSON object, with all digits.

    It has no comparison with the default configuration, which later runs change.
    """
    return {column: getattr(row, column) for column in COLUMNS if column not in COMPARISON} | _json_parameters(row)


def _json_parameters(row: RecurrenceRow) -> dict[str, Cell]:
    return {f"{PARAMETER_PREFIX}{name}": value for name, value in sorted(row.parameters.items())}


def _bounded(names: tuple[str, str, str], estimate: Estimate | None) -> dict[str, Any]:
    values = (None, None, None) if estimate is None else (estimate.low, estimate.value, estimate.high)
    return dict(zip(names, values, strict=True))


def _pipeline_cells(result: PipelineResult | None) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        "clocks": result.mode.lower(),
        "frequency_plan": result.plan or None,
        "planned_iteration_seconds": result.planned_seconds,
        "planned_iteration_joules": result.planned_joules,
        "realised_iteration_seconds": result.realised_seconds,
        "realised_iteration_joules": result.realised_joules,
        "plan_saving_percent": result.saving_percent,
        "plan_slowdown_percent": result.slowdown_percent,
        "plan_saving_error_percent": result.saving_error_percent,
        "plan_slowdown_error_percent": result.slowdown_error_percent,
        "planned_saving_percent": result.planned_saving_percent,
        "planned_slowdown_percent": result.planned_slowdown_percent,
    }


def outcome_text(result: str) -> str:
    """A result in the form of the simulator's files.

    Example:
        >>> outcome_text("DeadlineExceeded")
        'deadline-exceeded'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", result).lower()


def cell_text(cell: Cell) -> str:
    """Ten significant digits; empty for a missing value.

    Example:
        >>> cell_text(1 / 3), cell_text(24.0), cell_text(None), cell_text("reached")
        ('0.3333333333', '24', '', 'reached')
    """
    if isinstance(cell, float):
        return f"{cell:.10g}"
    return "" if cell is None else str(cell)


def _rounded(cell: Cell) -> Cell:
    return float(cell_text(cell)) if isinstance(cell, float) else cell
