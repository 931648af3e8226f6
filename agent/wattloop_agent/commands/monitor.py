"""``wattloop monitor``: energy and power of this machine's GPUs, read as any user may."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.errors import CannotError
from wattloop_agent.commands.usage import Usage, usage_between
from wattloop_agent.reader.nvml_readings import NvmlReadings
from wattloop_agent.refusal import Refused

REFRESH_SECONDS = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop monitor``."""
    parser.add_argument(
        "--seconds",
        type=_positive,
        metavar="S",
        help="measure for so long, then say what was used; default: until Ctrl-C",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how; default: table")
    parser.add_argument("--nvml-library", type=Path, metavar="PATH", help="the libnvidia-ml.so.1 to load")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of seconds above 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Measure, show."""
    try:
        readings = NvmlReadings(arguments.nvml_library)
        if arguments.format == "json" or not sys.stdout.isatty():
            _measure(readings, arguments.seconds, arguments.format)
        else:
            _live(readings, arguments.seconds)
    except Refused as refusal:
        raise CannotError(refusal.message) from refusal
    return 0


def _measure(readings: NvmlReadings, seconds: float | None, form: str) -> None:
    begin = readings.conditions()
    _wait(seconds)
    usages = usage_between(begin, readings.conditions())
    if form == "json":
        sys.stdout.write(json.dumps(_document(usages), indent=2) + "\n")
        return
    from rich.console import Console  # noqa: PLC0415 - JSON needs no table

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    Console().print(usage_table(usages))


def _live(readings: NvmlReadings, seconds: float | None) -> None:
    from rich.live import Live  # noqa: PLC0415

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    begin = readings.conditions()
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with Live(usage_table(usage_between(begin, begin)), auto_refresh=False) as live:
        while (left := until - time.monotonic()) > 0 and not _wait(min(left, REFRESH_SECONDS)):
            live.update(usage_table(usage_between(begin, readings.conditions())), refresh=True)


def _wait(seconds: float | None) -> bool:
    """Wait; returns whether Ctrl-C ended it: that is how a measurement without an end is ended."""
    try:
        threading.Event().wait(seconds)
    except KeyboardInterrupt:
        return True
    return False


def _document(usages: Sequence[Usage]) -> dict[str, object]:
    gpus = [
        {
            "uuid": usage.now.uuid,
            "name": usage.now.name,
            "energy_joules": usage.energy_joules,
            "duration_seconds": usage.duration_seconds,
            "mean_power_watts": usage.mean_power_watts,
            "power_watts": usage.now.power_watts,
            "power_limit_watts": usage.now.power_limit_watts,
            "enforced_power_limit_watts": usage.now.enforced_power_limit_watts,
            "graphics_clock_megahertz": usage.now.graphics_clock_megahertz,
            "problem": usage.now.problem or None,
        }
        for usage in usages
    ]
    known = [usage.energy_joules for usage in usages if usage.energy_joules is not None]
    return {"energy_joules": sum(known) if len(known) == len(usages) else None, "gpus": gpus}


COMMAND = Command(
    summary="energy and power of this machine's GPUs",
    description="Energy used since it began, power, limit and clock of each GPU: a live table until Ctrl-C, or for "
    "--seconds. Reads only; needs neither root nor an agent.",
    example="  wattloop monitor\n  wattloop monitor --seconds 10 --format json",
    configure=configure,
    run=run,
)
