"""The rows of ``recurrences.csv`` and `wattloop history`: one for each attempt, in files and as a table."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import IO, Any

from pydantic import Field
from rich.table import Table
from rich.text import Text

from wattloop.files.csv_table import write_csv_table
from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop.printable import printable
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.domain.quantities import NONE, NOT_KNOWN_YET, Units, metric_text, number_text, percent_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.history.energy_origin import origin_of_attempt
from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.history.lines import Interval, Line
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules
from wattloop_operator.reconcile.learning.job_savings import Purpose
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.observations import PARAMETER_PREFIX

Cell = int | float | str | None


class RecurrenceRow(Line):
    """One attempt. The fields are the columns, in this order; those that a record has are its fields.

    A value is None if it is not known, or if there is none.
    """

    recurrence: int
    attempt: int
    batch_size: int
    power_limit_watts: float | None
    epochs: float
    outcome: str
    energy_joules: float | None
    time_seconds: float | None
    cost_joules: float | None = Field(description="η·energy + (1−η)·power·time, which is no energy.")
    metric: float | None
    default_cost_joules: Interval | None = Field(
        description="Expected cost of a recurrence in the default configuration, the same in every row; null in rows "
        "before an epoch of it changed its cost, and before the default batch size has reached the target."
    )
    cost_saving_percent: Interval | None = Field(
        description="What its recurrence cost less than the default, in percent of it; in the row of the last attempt. "
        "Null for a default run, if the target was missed, and until it is known."
    )
    purpose: str | None = Field(description="baseline, learning or chosen; null without a comparison.")
    reason: str
    image_digest: str | None
    energy_origin: str | None = Field(description="An `EnergyOrigin`.")
    clocks: str | None = Field(description="What the ranks of a pipeline did at the end: free, profile or plan.")
    frequency_plan: str | None
    planned_iteration_seconds: float | None
    planned_iteration_joules: float | None
    realised_iteration_seconds: float | None
    realised_iteration_joules: float | None
    plan_saving_percent: float | None
    plan_slowdown_percent: float | None
    plan_saving_error_percent: float | None
    plan_slowdown_error_percent: float | None
    planned_saving_percent: float | None
    planned_slowdown_percent: float | None
    probe_trials: int | None
    probe_energy_joules: float | None
    probe_time_seconds: float | None
    resumed: int | None
    parameters: dict[str, str] = Field(description="A column ``param:NAME`` each, after the others.")

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, tuple(sorted(self.parameters.items())))

    @property
    def reached(self) -> bool:
        """Whether the attempt reached the target."""
        return self.outcome == "reached"


COLUMNS = tuple(name for name in RecurrenceRow.columns() if name != "parameters")
# The comparison of a recurrence with the default configuration.
COMPARISON = frozenset(
    {"purpose"}
    | {f"{end}{name}" for end in ("low_", "", "high_") for name in ("default_cost_joules", "cost_saving_percent")}
)
OF_RECORD = tuple(each.name for each in fields(ObservationRecord) if each.name in RecurrenceRow.model_fields)
# Columns by the fields of a `PipelineResult`.
OF_PIPELINE = {
    "mode": "clocks",
    "plan": "frequency_plan",
    "planned_seconds": "planned_iteration_seconds",
    "planned_joules": "planned_iteration_joules",
    "realised_seconds": "realised_iteration_seconds",
    "realised_joules": "realised_iteration_joules",
    "saving_percent": "plan_saving_percent",
    "slowdown_percent": "plan_slowdown_percent",
    "saving_error_percent": "plan_saving_error_percent",
    "slowdown_error_percent": "plan_slowdown_error_percent",
    "planned_saving_percent": "planned_saving_percent",
    "planned_slowdown_percent": "planned_slowdown_percent",
}
TABLE_NUMBERS = ("run", "try", "batch", "limit (W)", "epochs")
# Only if a row has them: the frequency plan of a pipeline, and an iteration of it.
TABLE_PIPELINE = ("clocks", "planned", "realised", "plan saves (%)")


@once_per_history
def rows_of(history: JobHistory) -> tuple[RecurrenceRow, ...]:
    """The rows of a history, ordered by (recurrence, attempt)."""
    savings = history.savings
    purposes = {each.index: each.purpose.value for each in savings.recurrences if savings.default is not None}
    last = {record.recurrence: record.attempt for record in history.records}
    return tuple(
        RecurrenceRow(
            **{name: getattr(record, name) for name in OF_RECORD}
            | {
                "outcome": outcome_text(record.result),
                "energy_joules": record.energy_joules or None,
                "time_seconds": record.time_seconds or None,
                "cost_joules": None if history.eta is None else attempt_cost_joules(record, history.eta),
                "default_cost_joules": Interval.of(
                    savings.default.of_run if savings.default and record.recurrence in purposes else None
                ),
                "cost_saving_percent": Interval.of(
                    savings.of(record.recurrence) if record.attempt == last[record.recurrence] else None
                ),
                "purpose": purposes.get(record.recurrence),
                "energy_origin": origin_of_attempt(record, history.energy_origin),
                "parameters": dict(record.parameters),
                "resumed": None if record.resumed is None else int(record.resumed),
            }
            | _pipeline_cells(record.pipeline)
        )
        for record in history.records
    )


def write_csv(stream: IO[str], rows: Iterable[RecurrenceRow]) -> None:
    """Write the rows as CSV.

    The file has a header, numbers with ten significant digits, and empty cells for missing values.
    """
    rows = list(rows)
    names = [f"{PARAMETER_PREFIX}{name}" for name in sorted({name for row in rows for name in row.parameters})]
    cells = ({name: cell_text(cell) for name, cell in _cells(row).items()} for row in rows)
    write_csv_table(stream, (*COLUMNS, *names), cells)


def write_json(stream: IO[str], rows: Iterable[RecurrenceRow]) -> None:
    """Write the rows as a JSON list of objects with the same names and digits.

    Missing values are null.
    """
    json.dump([json_object(row) for row in rows], stream, indent=2)
    stream.write("\n")


def json_object(row: RecurrenceRow) -> dict[str, Cell]:
    """A row as a JSON object; each parameter is a member ``param:NAME``."""
    return {name: float(cell_text(cell)) if isinstance(cell, float) else cell for name, cell in _cells(row).items()}


def measured_json_object(row: RecurrenceRow) -> dict[str, Cell]:
    """What was measured of a row as a JSON object, with all digits.

    It has no comparison with the default configuration, which later runs change.
    """
    return {name: cell for name, cell in _cells(row).items() if name not in COMPARISON}


def _cells(row: RecurrenceRow) -> dict[str, Cell]:
    cells = row.cells()
    parameters = cells.pop("parameters")
    return cells | {f"{PARAMETER_PREFIX}{name}": value for name, value in sorted(parameters.items())}


def _pipeline_cells(result: PipelineResult | None) -> dict[str, Any]:
    if result is None:
        return dict.fromkeys(OF_PIPELINE.values())
    cells = {column: getattr(result, name) for name, column in OF_PIPELINE.items()}
    return cells | {"clocks": result.mode.lower(), "frequency_plan": result.plan or None}


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


def table_of(rows: Sequence[RecurrenceRow], title: str = "") -> Table:
    """A table with one line for each attempt and four significant digits. Files have all digits, in joules and seconds.

    A column of energies or times has the unit of its largest value. An unknown value is an empty cell.

    The columns on pipelines and probes are there only if an attempt ran as one, or probed.
    """
    table = Table(title=_untrusted(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for name in TABLE_NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    units = Units.of([row.energy_joules for row in rows], [row.time_seconds for row in rows])
    energy, time = f"energy ({units.energy.name})", f"time ({units.time.name})"
    measurements = (energy, time, "metric", "cost saved (%)")
    for name in measurements:
        table.add_column(name, justify="right", no_wrap=True)
    pipelines = any(row.clocks is not None for row in rows)
    for name in TABLE_PIPELINE if pipelines else ():
        table.add_column(name, justify="right", no_wrap=True)
    probes = any(row.probe_trials is not None for row in rows)
    if probes:
        table.add_column("trials (% of time)", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            str(row.recurrence),
            str(row.attempt),
            _untrusted(str(row.configuration)),
            number_text(row.power_limit_watts),
            number_text(row.epochs),
            row.outcome,
            units.energy.number(row.energy_joules, unknown=""),
            units.time.number(row.time_seconds, unknown=""),
            metric_text(row.metric),
            saving_cell(row),
            *(_pipeline_texts(row) if pipelines else ()),
            *((_probe_cell(row),) if probes else ()),
            _untrusted(row.reason),
            style=None if row.reached else "dim",
        )
    return table


def _untrusted(text: str) -> Text:
    """A text of a user or a stored file. Rich reads markup in a string, and prints escape characters of either."""
    return Text(printable(text))


def _pipeline_texts(row: RecurrenceRow) -> tuple[str, ...]:
    return (
        row.clocks or "–",
        _iteration(row.planned_iteration_seconds, row.planned_iteration_joules),
        _iteration(row.realised_iteration_seconds, row.realised_iteration_joules),
        _plan_saving(row),
    )


def _probe_cell(row: RecurrenceRow) -> str:
    if row.probe_trials is None:
        return NONE
    share = None
    if row.probe_time_seconds is not None and row.time_seconds:
        share = 100 * row.probe_time_seconds / row.time_seconds
    return f"{row.probe_trials} ({number_text(share, '?')})"


def _plan_saving(row: RecurrenceRow) -> str:
    """The measured saving with its interval of 95 %, and the planned one."""
    value, error, planned = row.plan_saving_percent, row.plan_saving_error_percent, row.planned_saving_percent
    if row.planned_iteration_seconds is None and value is None:
        return NONE
    interval = "" if value is None or error is None else f" ± {NORMAL_95 * error:.2g}"
    beside = "" if planned is None else f" (planned: {number_text(planned)})"
    return number_text(value, NOT_KNOWN_YET) + interval + beside


def _iteration(seconds: float | None, joules: float | None) -> str:
    known = (f"{number_text(value)} {unit}" for value, unit in ((seconds, "s"), (joules, "J")) if value is not None)
    return ", ".join(known) or "–"


def saving_cell(row: RecurrenceRow) -> str:
    """The cost that a row's recurrence saved in percent with its interval; – of a default run, empty if not known yet.

    Only the last attempt of a recurrence has it.
    """
    if row.cost_saving_percent is not None:
        return percent_text(row.cost_saving_percent).replace(" %", "")
    return NONE if row.reached and row.purpose in (Purpose.BASELINE, Purpose.LEARNING) else ""
