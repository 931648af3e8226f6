"""The grid of a sweep: its points, the runs that have ended at them, and their table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from statistics import fmean
from typing import IO

from rich.table import Table

from wattloop.files.csv_table import write_csv_table
from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.domain.quantities import Units, number_text
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import cell_text, rows_of
from wattloop_operator.plots.tradeoff import TradeoffPoint, pareto_front

SLOT = re.compile(r"b([0-9]{1,18})-(p([0-9]{1,9})|free)-r([0-9]{1,9})")
MAX_RUNS = 10_000
# Results that say nothing about a point: it is run again.
REPEATED_RESULTS = frozenset(each.value for each in SCRIPT_FAILURES | {Result.DISRUPTED, Result.CANCELLED})


@dataclass(frozen=True, order=True)
class GridPoint:
    """One run of a sweep.

    Attributes:
        batch_size: Its batch size.
        power_limit_watts: The power limit of each GPU; None: none is set.
        repeat: Which of the runs with these it is, from 0.
    """

    batch_size: int
    power_limit_watts: int | None
    repeat: int

    @property
    def slot(self) -> str:
        """The slot of its recurrence, by which a later sweep finds it.

        Example:
            >>> GridPoint(32, 150, 0).slot, GridPoint(64, None, 1).slot
            ('b32-p150-r0', 'b64-free-r1')
        """
        limit = "free" if self.power_limit_watts is None else f"p{self.power_limit_watts}"
        return f"b{self.batch_size}-{limit}-r{self.repeat}"

    @staticmethod
    def of_slot(slot: str) -> GridPoint | None:
        """The point of a slot; None if the slot is no point's.

        Example:
            >>> GridPoint.of_slot("b32-p150-r0"), GridPoint.of_slot("1772323200")
            (GridPoint(batch_size=32, power_limit_watts=150, repeat=0), None)
        """
        match = SLOT.fullmatch(slot)
        if match is None:
            return None
        return GridPoint(int(match[1]), None if match[3] is None else int(match[3]), int(match[4]))

    def __str__(self) -> str:
        """Batch size, limit and repeat, for messages."""
        limit = "no limit" if self.power_limit_watts is None else f"{self.power_limit_watts} W"
        return f"batch size {self.batch_size} at {limit}, repeat {self.repeat}"


@dataclass(frozen=True)
class Grid:
    """The points of a sweep.

    Attributes:
        batch_sizes: The batch sizes.
        power_limits: The power limits in watts; None: no limit.
        repeats: Number of runs at each.
    """

    batch_sizes: tuple[int, ...]
    power_limits: tuple[int | None, ...]
    repeats: int

    def __len__(self) -> int:
        return len(self.batch_sizes) * len(self.power_limits) * self.repeats

    def points(self) -> Iterator[GridPoint]:
        """All points; the first repeat of all of them comes before the second of any."""
        for repeat, batch_size, limit in itertools.product(range(self.repeats), self.batch_sizes, self.power_limits):
            yield GridPoint(batch_size, limit, repeat)


@dataclass(frozen=True)
class SweepRow:
    """One run that has ended. The attributes are the columns of ``sweep.csv``, in this order."""

    batch_size: int
    power_limit_watts: int | None
    repeat: int
    epochs: float
    outcome: str
    energy_joules: float | None
    time_seconds: float | None
    cost_joules: float | None
    energy_origin: str | None


def rows_of_sweep(history: JobHistory) -> tuple[SweepRow, ...]:
    """The rows of all points that have been run, ordered by point, the ones without a limit first.

    A run that was interrupted has none.
    """
    found: dict[GridPoint, SweepRow] = {}
    for record, row in zip(history.records, rows_of(history), strict=True):
        point = GridPoint.of_slot(record.slot)
        if point is not None and record.result not in REPEATED_RESULTS:
            found[point] = SweepRow(
                point.batch_size,
                point.power_limit_watts,
                point.repeat,
                row.epochs,
                row.outcome,
                row.energy_joules,
                row.time_seconds,
                row.cost_joules,
                row.energy_origin,
            )
    return tuple(found[point] for point in sorted(found, key=_order))


def write_sweep_csv(stream: IO[str], rows: Iterable[SweepRow]) -> None:
    """Write the rows as CSV: a header, numbers with ten significant digits, empty cells for missing values."""
    columns = [column.name for column in fields(SweepRow)]
    write_csv_table(stream, columns, ([cell_text(cell) for cell in astuple(row)] for row in rows))


def table_of_sweep(rows: Sequence[SweepRow], points: Sequence[TradeoffPoint]) -> Table:
    """A table with the means of each batch size and power limit over its runs that reached the target.

    Args:
        rows: The rows of the sweep.
        points: Its points in the trade-off plot, of which those of the Pareto front are marked.
    """
    front = {(point.configuration.batch_size, point.power_limit_watts) for point in pareto_front(points)}
    units = Units.of([row.energy_joules for row in rows], [row.time_seconds for row in rows])
    groups = {
        key: list(group) for key, group in itertools.groupby(rows, lambda row: (row.batch_size, row.power_limit_watts))
    }
    reached = {key: [run for run in runs if run.outcome == "reached"] for key, runs in groups.items()}
    costs = {key: _mean(run.cost_joules for run in runs) for key, runs in reached.items()}
    least = min((cost for cost in costs.values() if cost is not None), default=1.0)
    table = Table(box=None, pad_edge=False)
    energy, time = f"energy ({units.energy.name})", f"time ({units.time.name})"
    for name in ("batch", "limit (W)", "reached", "epochs", energy, time, "cost (% of the least)"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Pareto front", no_wrap=True)
    for key, runs in groups.items():
        batch_size, limit = key
        cost = costs[key]
        table.add_row(
            str(batch_size),
            number_text(limit),
            f"{len(reached[key])}/{len(runs)}",
            number_text(_mean(run.epochs for run in reached[key])),
            units.energy.number(_mean(run.energy_joules for run in reached[key])),
            units.time.number(_mean(run.time_seconds for run in reached[key])),
            number_text(None if cost is None else 100 * cost / least),
            "yes" if key in front else "",
            style=None if reached[key] else "dim",
        )
    return table


def _order(point: GridPoint) -> tuple[int, int, int]:
    return point.batch_size, point.power_limit_watts or 0, point.repeat


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return fmean(known) if known else None
