"""The rows of a job's history as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop_operator.history.rows import RecurrenceRow

NUMBERS = ("run", "try", "batch", "limit (W)", "epochs")
MEASUREMENTS = ("energy (J)", "time (s)", "cost (J)", "saved (%)")
# Only if a row has them: the frequency plan of a pipeline, and an iteration of it.
PIPELINE = ("clocks", "planned", "realised", "plan saves (%)")


def table_of(rows: Sequence[RecurrenceRow], title: str = "") -> Table:
    """A table with one line for each attempt and four significant digits. Files have all digits.

    The columns on pipelines are there only if an attempt ran as one.
    """
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for name in MEASUREMENTS:
        table.add_column(name, justify="right", no_wrap=True)
    pipelines = any(row.clocks is not None for row in rows)
    for name in PIPELINE if pipelines else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            str(row.recurrence),
            str(row.attempt),
            str(row.configuration),
            formatted_number(row.power_limit_watts),
            formatted_number(row.epochs),
            row.outcome,
            formatted_number(row.energy_joules),
            formatted_number(row.time_seconds),
            formatted_number(row.cost_joules),
            _saved(row),
            *(_pipeline_cells(row) if pipelines else ()),
            row.reason,
            style=None if row.reached else "dim",
        )
    return table


def formatted_number(value: float | None) -> str:
    """Four significant digits, or more if the integer part has more.

    Example:
        >>> formatted_number(1234567.8), formatted_number(12.3456), formatted_number(250.0), formatted_number(None)
        ('1,234,568', '12.35', '250', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _pipeline_cells(row: RecurrenceRow) -> tuple[str, ...]:
    return (
        row.clocks or "–",
        _iteration(row.planned_iteration_seconds, row.planned_iteration_joules),
        _iteration(row.realised_iteration_seconds, row.realised_iteration_joules),
        _with_interval(row.plan_saving_percent, row.plan_saving_error_percent),
    )


def _with_interval(value: float | None, error: float | None) -> str:
    """A value with its interval of 95 %."""
    return formatted_number(value) + ("" if value is None or error is None else f" ± {NORMAL_95 * error:.2g}")


def _iteration(seconds: float | None, joules: float | None) -> str:
    known = (
        f"{formatted_number(value)} {unit}" for value, unit in ((seconds, "s"), (joules, "J")) if value is not None
    )
    return ", ".join(known) or "–"


def _saved(row: RecurrenceRow) -> str:
    if row.cost_joules is None or not row.default_cost_joules:
        return "–"
    return f"{100 * (1 - row.cost_joules / row.default_cost_joules):.0f}"
