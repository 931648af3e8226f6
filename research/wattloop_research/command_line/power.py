"""`wattloop power select`: selects a power limit from a measured profile."""

import argparse
import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.errors import InputError
from wattloop.files.csv_table import MAX_FILE_BYTES, Row, read_table
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.power.selectors import Cost, Energy, MaxSlowdown, MeasuredLimit, Selector, Time
from wattloop.wire.message_fields import shown

GPU_ENERGY_COLUMN = re.compile(r"gpu\d+_energy")
LIMIT_AT_END = re.compile(r"_(\d+(?:\.\d+)?)$")
EXPECTED = "a JSON object with a list measurements"
EXAMPLE = "  wattloop power select --profile profile.csv --selector cost --eta 0.5"
SELECTORS = ("energy", "time", "cost", "max-slowdown")


def read_power_profile(path: str | Path) -> tuple[MeasuredLimit, ...]:
    """The measurements of a profile in one of three formats: at least one, by rising power limit.

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
        return _json_measurements(path)
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
    return tuple(measurements[limit][1] for limit in sorted(measurements))


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
    columns = [column for column in row.cells if GPU_ENERGY_COLUMN.fullmatch(column)]
    if not columns:
        raise InputError(row.source, "no energy column of a GPU", "columns gpu0_energy, gpu1_energy, …", 1)
    energy = sum(row.number(column, above=0) for column in columns)
    return MeasuredLimit(float(match[1]), energy, row.number("elapsed_time", above=0), len(columns))


def _require(row: Row, *columns: str) -> None:
    for column in columns:
        if column not in row.cells:
            found = f"no such column (columns: {', '.join(row.cells)})"
            raise InputError(row.source, found, f"one column {column}", 1, column)


def _json_measurements(path: str | Path) -> tuple[MeasuredLimit, ...]:
    source = str(path)
    document = parse_json(read_text(path, MAX_FILE_BYTES, EXPECTED), source, EXPECTED, MAX_JSON_BYTES)
    entries = document.get("measurements") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(source, shown(entries), f"{EXPECTED} of at least one object")
    found: dict[float, MeasuredLimit] = {}
    for place, entry in enumerate(entries):
        measurement = _json_measurement(source, f"measurements[{place}]", entry)
        limit = measurement.power_limit_watts
        if limit in found:
            raise InputError(source, f"power limit {limit:g} W again in measurements[{place}]", "each limit once")
        found[limit] = measurement
    return tuple(found[limit] for limit in sorted(found))


def _json_measurement(source: str, place: str, entry: object) -> MeasuredLimit:
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


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    select = actions.add_parser(
        "select",
        help="print the power limit selected from a measured profile, as JSON",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{EXAMPLE}",
    )
    select.add_argument(
        "--profile",
        required=True,
        help="CSV: power_limit_watts, energy_joules, time_seconds [, gpus]; or JSON of a PowerLimitOptimizer",
    )
    select.add_argument("--selector", choices=SELECTORS, default="cost", help="what to minimise (default: cost)")
    select.add_argument("--eta", type=float, default=0.5, help="weight of energy in the cost, 0 to 1 (default: 0.5)")
    select.add_argument("--factor", type=float, default=1.1, help="maximum slowdown for max-slowdown (default: 1.1)")


def _run(arguments: argparse.Namespace) -> int:
    cost = Cost(arguments.eta)
    selectors: dict[str, Selector] = {"energy": Energy(), "time": Time(), "cost": cost}
    selector = selectors.get(arguments.selector) or MaxSlowdown(arguments.factor)
    measurements = read_power_profile(arguments.profile)
    chosen = selector.select(measurements)
    document = {
        "power_limit_watts": chosen.power_limit_watts,
        "energy_joules": chosen.energy_joules,
        "time_seconds": chosen.time_seconds,
        "cost_joules": cost.cost_joules(chosen, measurements),
        "selector": arguments.selector,
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


COMMAND = Command(
    description="Selects the power limit of minimum energy, time or cost, or the lowest limit within a slowdown.",
    example=EXAMPLE,
    configure=_configure,
    run=_run,
)
