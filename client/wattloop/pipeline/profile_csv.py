"""The profile that ``wattloop plan --profile`` reads, with the rows of all ranks, which a later run completes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from wattloop.errors import UsageError
from wattloop.files.atomic_write import locked, open_atomic
from wattloop.files.csv_table import Row, read_table, write_csv_table
from wattloop.pipeline.clock_profiling import CLOCKS_OF_BLOCKING_POWER, ClockResult, Profiling, clocks_left
from wattloop.pipeline.plan_messages import Directive, InstructionMeasurement
from wattloop.pipeline.standard_errors import RegressionEstimate

KEY_COLUMNS = ("gpu_product", "model", "partition")
COLUMNS = (
    "stage",
    "instruction",
    "frequency",
    "time",
    "energy",
    "rank",
    "time_error",
    "energy_error",
    "repetitions",
    "blocking_power",
    *KEY_COLUMNS,
)


@dataclass(frozen=True)
class ProfileKey:
    """What a profile applies to; a run with another key does not continue it.

    Attributes:
        gpu_product: Product name of the GPUs.
        model: Name or digest of the model; empty if the script does not name it.
        partition: Degrees, stages, microbatches and schedule.
    """

    gpu_product: str
    model: str
    partition: str

    def __str__(self) -> str:
        return f"{self.gpu_product}, {self.model or 'a model without a name'}, {self.partition}"


@dataclass(frozen=True)
class ProfileFile:
    """The profile of a job, of which this rank writes its rows.

    Attributes:
        path: The file.
        rank: The rank.
        key: What its measurements apply to.
    """

    path: Path
    rank: int
    key: ProfileKey

    def remaining(self, clocks_megahertz: Sequence[int], ranks: int) -> tuple[int, ...]:
        """The clocks to measure that some rank lacks, in the same order.

        A rank that stopped at a clock, because its effective energy rose, lacks none below it. Its rows say so, and
        its instructions are those of its rows. If no rank of several stages could tell its power while it waits, the
        first clocks are measured again: without it there is no plan, and more measurements may tell it.

        Args:
            clocks_megahertz: All clocks to measure.
            ranks: Number of ranks of the job.

        Raises:
            UsageError: The file has another key.
            InputError: It has another form.
            OperationError: It cannot be read.
        """
        rows = self._rows()
        found = {ProfileKey(*(row.cells[name] for name in KEY_COLUMNS)) for row in rows}
        for other in sorted(found - {self.key}, key=str):
            raise UsageError(f"{self.path} is of {other}, and this run of {self.key}; name another file, or delete it")
        by_rank: dict[int, list[Row]] = {}
        for row in rows:
            by_rank.setdefault(row.integer("rank", minimum=0), []).append(row)
        lacking = set[int]()
        for rank in range(ranks):
            lacking.update(_lacking(by_rank.get(rank, ()), clocks_megahertz))
        waits = len({row.text("stage") for row in rows}) > 1
        if not lacking and waits and not any(row.cells["blocking_power"] for row in rows):
            return tuple(clocks_megahertz[:CLOCKS_OF_BLOCKING_POWER])
        return tuple(clock for clock in clocks_megahertz if clock in lacking)

    def store(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """Replace the rows of this rank by its measurements at the same clocks; the others stay.

        Measurements at free clocks are left out. A measurement whose energy is not known has an empty cell, and
        replaces no row that has one. A blocking power that is known stays if the new one is not.

        Raises:
            InputError: There is a file of another form.
            OperationError: It cannot be read or written.
        """
        with locked(self.path):
            rows = {_place(row.cells): row.cells for row in self._rows()}
            for each in measurements:
                cells = self._cells(each, blocking_watts)
                before = rows.get(_place(cells), {})
                cells["blocking_power"] = cells["blocking_power"] or before.get("blocking_power", "")
                if each.megahertz and (cells["energy"] or not before.get("energy")):
                    rows[_place(cells)] = cells
            with open_atomic(self.path) as stream:
                ordered = sorted(
                    rows.values(),
                    key=lambda each: (int(each["stage"]), each["instruction"], -int(each["frequency"]), each["rank"]),
                )
                write_csv_table(stream, COLUMNS, ordered)

    def _rows(self) -> list[Row]:
        return list(read_table(self.path, COLUMNS)) if self.path.exists() else []

    def _cells(self, measurement: InstructionMeasurement, blocking_watts: float | None) -> dict[str, str]:
        values = {
            "stage": measurement.stage,
            "instruction": measurement.kind,
            "frequency": measurement.megahertz,
            "time": measurement.time_seconds,
            "energy": measurement.energy_joules,
            "rank": self.rank,
            "time_error": measurement.time_error_seconds,
            "energy_error": measurement.energy_error_joules,
            "repetitions": measurement.repetitions,
            "blocking_power": blocking_watts,
            **dict(zip(KEY_COLUMNS, astuple(self.key), strict=True)),
        }
        return {
            name: "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
            for name, value in values.items()
        }


def _lacking(rows: Sequence[Row], clocks_megahertz: Sequence[int]) -> tuple[int, ...]:
    """The clocks that a rank has not measured, above the one at which it stopped."""
    kinds = {_kind(row) for row in rows}
    measured: dict[int, dict[tuple[str, int], Row]] = {}
    for row in rows:
        if row.cells["energy"]:
            measured.setdefault(row.integer("frequency", minimum=1), {})[_kind(row)] = row
    # Without rows, its instructions are not known.
    left = clocks_left(clocks_megahertz, kinds, measured) if kinds else tuple(clocks_megahertz)
    complete = {clock: list(found.values()) for clock, found in measured.items() if found.keys() == kinds}
    lowest = _stopped_at(complete)
    return tuple(clock for clock in left if clock >= lowest)


def _stopped_at(complete: Mapping[int, Sequence[Row]]) -> int:
    """The clock at which a rank measures no lower ones, as `Profiling` decides it; 0 if it does not stop."""
    profiling = Profiling(Directive())
    for clock in sorted(complete, reverse=True):
        rows = complete[clock]
        errors = [row.optional_number("energy_error", minimum=0.0) or 0.0 for row in rows]
        joules = RegressionEstimate(math.fsum(row.number("energy") for row in rows), math.hypot(*errors))
        watts = rows[0].optional_number("blocking_power", minimum=0.0)
        result = ClockResult(clock, joules, math.fsum(row.number("time") for row in rows))
        profiling.add(result, None if watts is None else RegressionEstimate(watts, 0.0))
        if profiling.stopped:
            return clock
    return 0


def _kind(row: Row) -> tuple[str, int]:
    return row.text("instruction"), row.integer("stage", minimum=0)


def _place(cells: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(cells[name] for name in ("stage", "instruction", "frequency", "rank"))
