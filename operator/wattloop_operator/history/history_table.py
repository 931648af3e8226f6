"""The rows of a job's history as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop.printable import printable
from wattloop_operator.domain.quantities import (
    NONE,
    NOT_KNOWN_YET,
    Units,
    metric_text,
    number_text,
    percent_text,
)
from wattloop_operator.history.rows import RecurrenceRow
from wattloop_operator.reconcile.learning.job_savings import Purpose

NUMBERS = ("run", "try", "batch", "limit (W)", "epochs")
# Only if a row has them: the frequency plan of a pipeline, and an iteration of it.
PIPELINE = ("clocks", "planned", "realised", "plan saves (%)")


def table_of(rows: Sequence[RecurrenceRow], title: str = "") -> Table:
    """A table with one line for each attempt and four significant digits. Files have all digits, in joules and seconds.

    A column of energies or times has the unit of its largest value. An unknown value is an empty cell.

    The columns on pipelines and probes are there only if an attempt ran as one, or probed.
    """
    table = Table(title=_untrusted(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    units = Units.of([row.energy_joules for row in rows], [row.time_seconds for row in rows])
    energy, time = f"energy ({units.energy.name})", f"time ({units.time.name})"
    measurements = (energy, time, "metric", "cost saved (%)")
    for name in measurements:
        table.add_column(name, justify="right", no_wrap=True)
    pipelines = any(row.clocks is not None for row in rows)
    for name in PIPELINE if pipelines else ():
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
            *(_pipeline_cells(row) if pipelines else ()),
            *((_probe_cell(row),) if probes else ()),
            _untrusted(row.reason),
            style=None if row.reached else "dim",
        )
    return table


def _untrusted(text: str) -> Text:
    """A text of a user or a stored file. Rich reads markup in a string, and prints escape characters of either."""
    return Text(printable(text))


def _pipeline_cells(row: RecurrenceRow) -> tuple[str, ...]:
    return (
        row.clocks or "–",
        _iteration(row.planned_iteration_seconds, row.planned_iteration_joules),
        _iteration(row.realised_iteration_seconds, row.realised_iteration_joules),
        _plan_saving(row),
    )


def _probe_cell(row: RecurrenceRow) -> str:
    """Number of trials, and their time in percent of the attempt's."""
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
    if row.saving is not None:
        return percent_text(row.saving).replace(" %", "")
    return NONE if row.reached and row.purpose in (Purpose.BASELINE, Purpose.LEARNING) else ""
