"""Reads power profiles that `wattloop.PowerLimitOptimizer` and `wattloop power select` write as JSON."""

from __future__ import annotations

import math
from pathlib import Path

from wattloop.errors import InputError
from wattloop.files.csv_table import MAX_FILE_BYTES
from wattloop.files.json_reading import MAX_JSON_BYTES, parse_json
from wattloop.files.reading import read_text
from wattloop.power.selectors import MeasuredLimit
from wattloop.wire.message_fields import shown

EXPECTED = "a JSON object with a list measurements"


def json_measurements(path: str | Path) -> tuple[MeasuredLimit, ...]:
    """The measurements of the file, by rising power limit.

    Raises:
        InputError: The file is invalid.
    """
    source = str(path)
    document = parse_json(read_text(path, MAX_FILE_BYTES, EXPECTED), source, EXPECTED, MAX_JSON_BYTES)
    entries = document.get("measurements") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(source, shown(entries), f"{EXPECTED} of at least one object")
    found: dict[float, MeasuredLimit] = {}
    for place, entry in enumerate(entries):
        measurement = _measurement(source, f"measurements[{place}]", entry)
        limit = measurement.power_limit_watts
        if limit in found:
            raise InputError(source, f"power limit {limit:g} W again in measurements[{place}]", "each limit once")
        found[limit] = measurement
    return tuple(found[limit] for limit in sorted(found))


def _measurement(source: str, place: str, entry: object) -> MeasuredLimit:
    if not isinstance(entry, dict):
        raise InputError(source, f"{shown(entry)} at {place}", "an object")
    numbers = {
        name: _positive(source, f"{place}.{name}", entry.get(name))
        for name in ("power_limit_watts", "energy_joules", "time_seconds")
    }
    gpus = entry.get("gpus", 1)
    if type(gpus) is not int or gpus < 1:
        raise InputError(source, f"{shown(gpus)} at {place}.gpus", "a whole number of at least 1")
    return MeasuredLimit(**numbers, gpus=gpus)


def _positive(source: str, place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(source, f"{shown(value)} at {place}", "a positive finite number")
    return float(value)
