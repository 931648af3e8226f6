"""What a local run shows while it goes on: a table of recurrences that grows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from wattloop_operator.engine import memory
from wattloop_operator.engine.savings import default_cost
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_operator.store.records import ObservationRecord

COLORS = {"Reached": "green", "Stopped": "yellow", "Exhausted": "yellow", "Crashed": "red"}


def table_of(snapshot: Snapshot, rows: int | None = None) -> Table:
    """The recurrences so far, the newest last.

    Args:
        snapshot: The state of the job.
        rows: How many of the latest to show; None: all.
    """
    table = Table(title=f"{snapshot.job.metadata.name}: what each recurrence cost", title_justify="left")
    for heading in ("#", "batch", "limit W", "epochs", "energy kJ", "time s", "cost kJ", "saved"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why")
    records = memory.remembered(snapshot)
    default = default_cost(snapshot)
    eta = snapshot.job.spec.objective.energy_weight_percent / 100
    for record in records if rows is None else records[-rows:]:
        table.add_row(*_cells(record, eta, default))
    for running in snapshot.recurrences:
        if running.status.result is None:
            progress = running.status.progress
            epochs = "" if progress is None or progress.epoch is None else f"{progress.epoch:f}"
            number = _number(running.spec.index, running.spec.attempt)
            batch_size, why = str(running.spec.batch_size), running.spec.decision.reason
            table.add_row(number, batch_size, "", epochs, "", "", "", "", f"{why} — running", style="dim")
    return table


def _cells(record: ObservationRecord, eta: float, default: float | None) -> Sequence[Text | str]:
    cost = eta * record.energy_joules + (1 - eta) * record.max_power_watts * record.time_seconds
    saved = "" if not default else f"{100 * (1 - cost / default):+.0f} %"
    style = COLORS.get(record.result, "magenta")
    why = record.reason if record.result == "Reached" else f"{record.reason} — {record.result}"
    return (
        _number(record.recurrence, record.attempt),
        Text(str(record.batch_size), style=style),
        "" if record.power_limit_watts is None else f"{record.power_limit_watts:g}",
        f"{record.epochs:g}",
        f"{record.energy_joules / 1000:.1f}",
        f"{record.time_seconds:.0f}",
        f"{cost / 1000:.1f}",
        Text(saved, style="green" if saved.startswith("+") else "red"),
        why,
    )


def _number(recurrence: int, attempt: int) -> str:
    return str(recurrence) if attempt == 0 else f"{recurrence}.{attempt}"
