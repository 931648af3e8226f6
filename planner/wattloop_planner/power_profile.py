"""Reads measured power profiles: energy and time of the same training work at each power limit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattloop.errors import InputError
from wattloop.files.csv_table import Row, read_table
from wattloop.power.selectors import MeasuredLimit
from wattloop.wire.message_fields import shown
from wattloop_planner.power_profile_json import json_measurements

GPU_ENERGY_COLUMN = re.compile(r"gpu\d+_energy")
LIMIT_AT_END = re.compile(r"_(\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class PowerProfile:
    """Measurements, one per power limit, in order of rising limits.

    Attributes:
        measurements: At least one.
    """

    measurements: tuple[MeasuredLimit, ...]

    @property
    def max_power_limit_watts(self) -> float:
        """The highest measured limit."""
        return self.measurements[-1].power_limit_watts


def read_profile(path: str | Path) -> PowerProfile:
    """Read a profile in one of three formats.

    A file whose name ends in ``.json`` is a result of `wattloop.PowerLimitOptimizer` or of ``wattloop
    power select``: an object whose ``measurements`` are a list of objects with power_limit_watts,
    energy_joules, time_seconds and, optionally, gpus.

    Others are CSV. The first CSV format has the columns power_limit_watts, energy_joules (sum over the
    GPUs), time_seconds and, optionally, gpus (over all ranks; default 1). The second, written by energy
    windows, has window_name (ending in ``_<watts>``), elapsed_time and one column gpu<N>_energy per GPU.

    Raises:
        InputError: The file is invalid; the message names line and column.
    """
    source = str(path)
    if source.endswith(".json"):
        return PowerProfile(json_measurements(path))
    measurements: dict[float, tuple[int, MeasuredLimit]] = {}
    for row in read_table(path, ()):
        measurement = _measured_window(row) if "window_name" in row.cells else _measurement(row)
        limit = measurement.power_limit_watts
        if limit in measurements:
            first = measurements[limit][0]
            raise InputError(
                source, f"power limit {limit:g} W again, first on line {first}", "each limit once", row.line
            )
        measurements[limit] = (row.line, measurement)
    if not measurements:
        raise InputError(source, "no row below the header", "one row per power limit", 2)
    return PowerProfile(tuple(measurements[limit][1] for limit in sorted(measurements)))


def _measurement(row: Row) -> MeasuredLimit:
    _require(row, "power_limit_watts", "energy_joules", "time_seconds")
    gpus = row.integer("gpus", minimum=1) if row.cells.get("gpus") else 1
    limit = row.number("power_limit_watts", above=0)
    return MeasuredLimit(limit, row.number("energy_joules", above=0), row.number("time_seconds", above=0), gpus)


def _measured_window(row: Row) -> MeasuredLimit:
    _require(row, "elapsed_time")
    name = row.text("window_name")
    match = LIMIT_AT_END.search(name)
    if match is None or not 0 < float(match[1]) < math.inf:
        expected = "a name ending in _ and the power limit in watts"
        raise InputError(row.source, shown(name), expected, row.line, "window_name")
    columns = list(_gpu_columns(row))
    energy = sum(row.number(column, above=0) for column in columns)
    return MeasuredLimit(float(match[1]), energy, row.number("elapsed_time", above=0), len(columns))


def _gpu_columns(row: Row) -> Iterator[str]:
    columns = [column for column in row.cells if GPU_ENERGY_COLUMN.fullmatch(column)]
    if not columns:
        raise InputError(row.source, "no energy column of a GPU", "columns gpu0_energy, gpu1_energy, …", 1)
    yield from columns


def _require(row: Row, *columns: str) -> None:
    for column in columns:
        if column not in row.cells:
            found = f"no such column (columns: {', '.join(row.cells)})"
            raise InputError(row.source, found, f"one column {column}", 1, column)
