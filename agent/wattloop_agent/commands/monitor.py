"""``wattloop monitor``: energy and power of this machine's GPUs, read as any user may."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_agent.commands.energy_use import GpuUsage, usage_between
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.request_error import RequestError

REFRESH_SECONDS = 1.0


def run(arguments: argparse.Namespace) -> int:
    """Measure and show the GPUs' energy."""
    try:
        readings = NvmlReadings(arguments.nvml_library)
        with interruption.deferred():
            if arguments.format == "json" or not sys.stdout.isatty():
                ended = _measure(readings, arguments.seconds, arguments.format)
            else:
                ended = _live(readings, arguments.seconds)
    except RequestError as refusal:
        raise OperationError(refusal.message) from refusal
    return interruption.EXIT_INTERRUPTED if ended else 0


def _measure(readings: NvmlReadings, seconds: float | None, form: str) -> bool:
    begin = readings.statuses()
    ended = _wait(seconds)
    usages = usage_between(begin, readings.statuses())
    if form == "json":
        sys.stdout.write(json.dumps(_document(usages, readings.unnamed), indent=2) + "\n")
        return ended
    from rich.console import Console  # noqa: PLC0415 - JSON needs no table

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    Console().print(usage_table(usages, readings.unnamed))
    return ended


def _live(readings: NvmlReadings, seconds: float | None) -> bool:
    from rich.live import Live  # noqa: PLC0415

    from wattloop_agent.commands.monitor_table import usage_table  # noqa: PLC0415

    begin = readings.statuses()
    end_seconds = float("inf") if seconds is None else time.monotonic() + seconds
    with Live(usage_table(usage_between(begin, begin), readings.unnamed), auto_refresh=False) as live:
        ended = False
        while not ended and (left := end_seconds - time.monotonic()) > 0:
            ended = _wait(min(left, REFRESH_SECONDS))
            usages = usage_between(begin, readings.statuses())
            live.update(usage_table(usages, readings.unnamed), refresh=True)
    return ended


def _wait(seconds: float | None) -> bool:
    """Wait; returns whether a signal ended the wait, in which case the usage so far is shown."""
    with contextlib.suppress(interruption.Interrupted):
        interruption.sleep(seconds)
        return False
    return True


def _document(usages: Sequence[GpuUsage], lost: Mapping[int, str]) -> dict[str, object]:
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
    is_complete = len(known) == len(usages) and not lost
    unnamed = [{"index": index, "problem": problem} for index, problem in lost.items()]
    return {"energy_joules": sum(known) if is_complete else None, "gpus": gpus, "lost": unnamed}
