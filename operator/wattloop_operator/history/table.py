"""The rows of a job's history as a table for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from wattloop_operator.history.rows import RecurrenceRow

NUMBERS = ("run", "try", "batch", "limit (W)", "epochs")
AMOUNTS = ("energy (J)", "time (s)", "cost (J)", "saved (%)")


def table_of(rows: Iterable[RecurrenceRow], title: str = "") -> Table:
    """One line an attempt, amounts to four digits; the files have all of them."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for name in AMOUNTS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            str(row.recurrence),
            str(row.attempt),
            str(row.batch_size),
            _amount(row.power_limit_watts),
            _amount(row.epochs),
            row.outcome,
            _amount(row.energy_joules),
            _amount(row.time_seconds),
            _amount(row.cost_joules),
            _saved(row),
            row.reason,
            style=None if row.reached else "dim",
        )
    return table


def _amount(value: float | None) -> str:
    """Four digits, more only where the whole part has more.

    Example:
        >>> _amount(1234567.8), _amount(12.3456), _amount(250.0), _amount(None)
        ('1,234,568', '12.35', '250', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _saved(row: RecurrenceRow) -> str:
    if row.cost_joules is None or not row.default_cost_joules:
        return "–"
    return f"{100 * (1 - row.cost_joules / row.default_cost_joules):.0f}"
