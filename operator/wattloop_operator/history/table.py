"""The rows of a job's history as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop_operator.domain.quantities import number_text
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
            number_text(row.power_limit_watts),
            number_text(row.epochs),
            row.outcome,
            number_text(row.energy_joules),
            number_text(row.time_seconds),
            number_text(row.cost_joules),
            _saved(row),
            *(_pipeline_cells(row) if pipelines else ()),
            row.reason,
            style=None if row.reached else "dim",
        )
    return table


def _pipeline_cells(row: RecurrenceRow) -> tuple[str, ...]:
    return (
        row.clocks or "–",
        _iteration(row.planned_iteration_seconds, row.planned_iteration_joules),
        _iteration(row.realised_iteration_seconds, row.realised_iteration_joules),
        _with_interval(row.plan_saving_percent, row.plan_saving_error_percent),
    )


def _with_interval(value: float | None, error: float | None) -> str:
    """A value with its interval of 95 %."""
    return number_text(value) + ("" if value is None or error is None else f" ± {NORMAL_95 * error:.2g}")


def _iteration(seconds: float | None, joules: float | None) -> str:
    known = (f"{number_text(value)} {unit}" for value, unit in ((seconds, "s"), (joules, "J")) if value is not None)
    return ", ".join(known) or "–"


def _saved(row: RecurrenceRow) -> str:
    if row.cost_joules is None or not row.default_cost_joules:
        return "–"
    return f"{100 * (1 - row.cost_joules / row.default_cost_joules):.0f}"
