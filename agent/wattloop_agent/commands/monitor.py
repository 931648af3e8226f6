"""``wattloop monitor``: energy and power of this machine's GPUs, read as any user may."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.commands.settings import seconds
from wattloop.errors import CannotError
from wattloop_agent.commands.usage import Usage, usage_between
from wattloop_agent.reader.nvml_readings import NvmlReadings
from wattloop_agent.refusal import Refused

REFRESH_SECONDS = 1.0
YEAR_SECONDS = 365 * 86400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop monitor``."""
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="measure for so long, then say what was used; default: until Ctrl-C",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how; default: table")
    parser.add_argument("--nvml-library", type=Path, metavar="PATH", help="the libnvidia-ml.so.1 to load")


def _seconds(text: str) -> float:
    try:
        return seconds(0.001, YEAR_SECONDS)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


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
        sys.stdout.write(json.dumps(_document(usages, readings.unnamed), indent=2) + "\n")
        return
    from rich.console import Console  # noqa: PLC0415 - JSON needs no table

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    Console().print(usage_table(usages, readings.unnamed))


def _live(readings: NvmlReadings, seconds: float | None) -> None:
    from rich.live import Live  # noqa: PLC0415

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    begin = readings.conditions()
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with Live(usage_table(usage_between(begin, begin), readings.unnamed), auto_refresh=False) as live:
        while (left := until - time.monotonic()) > 0 and not _wait(min(left, REFRESH_SECONDS)):
            usages = usage_between(begin, readings.conditions())
            live.update(usage_table(usages, readings.unnamed), refresh=True)


def _wait(seconds: float | None) -> bool:
    """Wait; returns whether Ctrl-C ended it: that is how a measurement without an end is ended."""
    try:
        threading.Event().wait(seconds)
    except KeyboardInterrupt:
        return True
    return False


def _document(usages: Sequence[Usage], lost: Mapping[int, str]) -> dict[str, object]:
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
    all_known = len(known) == len(usages) and not lost
    unnamed = [{"index": index, "problem": problem} for index, problem in lost.items()]
    return {"energy_joules": sum(known) if all_known else None, "gpus": gpus, "lost": unnamed}


COMMAND = Command(
    summary="energy and power of this machine's GPUs",
    description="Energy used since it began, power, limit and clock of each GPU: a live table until Ctrl-C, or for "
    "--seconds. Reads only; needs neither root nor an agent.",
    example="  wattloop monitor\n  wattloop monitor --seconds 10 --format json",
    configure=configure,
    run=run,
)
