"""Writes the profile that ``wattloop plan --profile`` reads, with the rows of all ranks."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattloop.files.atomic_write import open_atomic
from wattloop.files.table import read_table
from wattloop.pipeline.messages import InstructionMeasurement
from wattloop.pipeline.shared_file import locked

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
)


def store_profile(
    path: Path, rank: int, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None
) -> None:
    """Replace the rows of one rank by these measurements; those of other ranks stay.

    Measurements at free clocks are left out. A measurement whose energy is not known has an empty cell.

    Raises:
        InputError: There is a file of another form.
        OperationError: It cannot be read or written.
    """
    with locked(path):
        others = (
            [row.cells for row in read_table(path, COLUMNS) if row.cells["rank"] != str(rank)] if path.exists() else []
        )
        own = [_cells(each, rank, blocking_watts) for each in measurements if each.megahertz]
        with open_atomic(path) as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(sorted([*others, *own], key=_order))


def _cells(measurement: InstructionMeasurement, rank: int, blocking_watts: float | None) -> dict[str, str]:
    values = {
        "stage": measurement.stage,
        "instruction": measurement.kind,
        "frequency": measurement.megahertz,
        "time": measurement.time_seconds,
        "energy": measurement.energy_joules,
        "rank": rank,
        "time_error": measurement.time_error_seconds,
        "energy_error": measurement.energy_error_joules,
        "repetitions": measurement.repetitions,
        "blocking_power": blocking_watts,
    }
    return {
        name: "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }


def _order(cells: Mapping[str, str]) -> tuple[int, str, int, str]:
    return int(cells["stage"]), cells["instruction"], -int(cells["frequency"]), cells["rank"]
