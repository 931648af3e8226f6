"""``wattloop monitor``: energy and power of this machine's GPUs, read as any user may."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wattloop import interruption
from wattloop.commands.contract import Command
from wattloop.commands.output import console
from wattloop.commands.settings import seconds
from wattloop.energy.gpu_reading import IntegratedEnergy
from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_agent.monitor.energy.gpu_account import GpuAccount
from wattloop_agent.monitor.gpu_sampler import GpuStatus
from wattloop_agent.refusals import RequestError

if TYPE_CHECKING:
    from rich.table import Table

    from wattloop_agent.monitor.nvml_readings import NvmlReadings

YEAR_SECONDS = 365 * 86400
REFRESH_SECONDS = 1.0
# Between two readings of the power of a GPU without an energy counter.
POWER_SECONDS = 0.1
UNKNOWN = "–"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop monitor``."""
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="measure for this time, then print the usage; default: until Ctrl-C",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format; default: table")


def _seconds(text: str) -> float:
    try:
        return seconds(0.001, YEAR_SECONDS)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


@dataclass(frozen=True)
class GpuUsage:
    """The usage of one GPU since the command started.

    Attributes:
        now: Its current status.
        energy_joules: By its counter, or the integral of its power if it has none; None: the counter was reset
            meanwhile, or it reports neither.
        duration_seconds: On the clock that its energy is integrated on.
        uncertainty_joules: Bound of the error of an integral; None: a counter measured the energy.
    """

    now: GpuStatus
    energy_joules: float | None
    duration_seconds: float
    uncertainty_joules: float | None = None

    @property
    def mean_power_watts(self) -> float | None:
        """Energy divided by duration; None if either is unknown."""
        if self.energy_joules is None or self.duration_seconds <= 0:
            return None
        return self.energy_joules / self.duration_seconds


class PowerIntegrals:
    """The energy of the GPUs without an energy counter, from repeated readings of their power.

    Args:
        readings: The GPUs.
        begin: Their status at the start.
    """

    def __init__(self, readings: NvmlReadings, begin: Sequence[GpuStatus]) -> None:
        self._readings = readings
        self._accounts = {
            status.uuid: GpuAccount(status.uuid, status.name)
            for status in begin
            if status.energy_millijoules is None and not status.problem
        }
        self.sample()

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def sample(self) -> None:
        """Read the power of these GPUs once."""
        if self._accounts:
            for sample in self._readings.samples(self._accounts):
                self._accounts[sample.uuid].add(sample)

    def of(self, uuid: str) -> tuple[float, float] | None:
        """(joules, bound of the error) since the start; None if its energy is not integrated."""
        integrated = self._accounts[uuid].integrated() if uuid in self._accounts else None
        if integrated is None:
            return None
        bound = integrated.uncertainty_since(IntegratedEnergy(0, 0.0, 0.0))
        return integrated.energy_millijoules / 1000, bound / 1000


def usage_between(
    begin: Sequence[GpuStatus], end: Sequence[GpuStatus], integrals: PowerIntegrals | None = None
) -> list[GpuUsage]:
    """The usage of each GPU of the second reading since the first; without a counter, by its integral if given."""
    before = {status.uuid: status for status in begin}
    usages = [_usage(before.get(status.uuid, status), status) for status in end]
    return usages if integrals is None else [_with_integral(usage, integrals) for usage in usages]


def _with_integral(usage: GpuUsage, integrals: PowerIntegrals) -> GpuUsage:
    integral = integrals.of(usage.now.uuid)
    if integral is None:
        return usage
    return replace(usage, energy_joules=integral[0], uncertainty_joules=integral[1])


def _usage(begin: GpuStatus, end: GpuStatus) -> GpuUsage:
    energy = None
    if begin.energy_millijoules is not None and end.energy_millijoules is not None:
        energy = (end.energy_millijoules - begin.energy_millijoules) / 1000
    if energy is not None and energy < 0:
        energy = None
        end = replace(end, problem=end.problem or "its energy counter was reset during the measurement")
    return GpuUsage(end, energy, end.time_seconds - begin.time_seconds)


def run(arguments: argparse.Namespace) -> int:
    """Measure and show the GPUs' energy."""
    # Imported here, like the table's library: --help needs neither.
    from wattloop_agent.monitor.nvml_readings import NvmlReadings  # noqa: PLC0415

    try:
        readings = NvmlReadings()
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
    integrals = PowerIntegrals(readings, begin)
    ended = _wait(seconds, integrals)
    usages = usage_between(begin, readings.statuses(), integrals)
    if form == "json":
        sys.stdout.write(json.dumps(_document(usages, readings.unnamed), indent=2) + "\n")
        return ended
    console().print(usage_table(usages, readings.unnamed))
    return ended


def _live(readings: NvmlReadings, seconds: float | None) -> bool:
    from rich.live import Live  # noqa: PLC0415

    begin = readings.statuses()
    integrals = PowerIntegrals(readings, begin)
    end_seconds = float("inf") if seconds is None else time.monotonic() + seconds
    with Live(
        usage_table(usage_between(begin, begin), readings.unnamed), console=console(), auto_refresh=False
    ) as live:
        ended = False
        while not ended and (left := end_seconds - time.monotonic()) > 0:
            ended = _wait(min(left, REFRESH_SECONDS), integrals)
            usages = usage_between(begin, readings.statuses(), integrals)
            live.update(usage_table(usages, readings.unnamed), refresh=True)
    return ended


def _wait(seconds: float | None, integrals: PowerIntegrals) -> bool:
    """Wait; returns whether a signal ended the wait, in which case the usage so far is shown."""
    end_seconds = math.inf if seconds is None else time.monotonic() + seconds
    with contextlib.suppress(interruption.Interrupted):
        while integrals and (left := end_seconds - time.monotonic()) > 0:
            interruption.sleep(min(left, POWER_SECONDS))
            integrals.sample()
        if not integrals:
            interruption.sleep(seconds)
        return False
    integrals.sample()
    return True


def _document(usages: Sequence[GpuUsage], lost: Mapping[int, str]) -> dict[str, object]:
    gpus = [
        {
            "uuid": usage.now.uuid,
            "name": usage.now.name,
            "energy_joules": usage.energy_joules,
            "uncertainty_joules": usage.uncertainty_joules,
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


def usage_table(usages: Sequence[GpuUsage], lost: Mapping[int, str]) -> Table:
    """One row per GPU, and their sum; below it, by index, the GPUs that NVML can't enumerate."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    caption = Text("\n".join(f"GPU {index}: {printable(problem)}" for index, problem in lost.items()))
    table = Table(title="GPU energy", show_footer=len(usages) > 1, caption=caption if lost else None)
    energies = [usage.energy_joules for usage in usages]
    powers = [usage.now.power_watts for usage in usages]
    table.add_column("GPU", footer="sum")
    table.add_column("model")
    table.add_column("energy J", justify="right", footer=_sum(energies))
    table.add_column("power W", justify="right", footer=_sum(powers))
    table.add_column("mean W", justify="right")
    table.add_column("limit W", justify="right")
    table.add_column("clock MHz", justify="right")
    indices = (index for index in itertools.count() if index not in lost)
    for index, usage in zip(indices, usages, strict=False):
        table.add_row(
            str(index),
            # Text, since rich reads markup in a string.
            Text(printable(usage.now.name)),
            _energy(usage),
            _number(usage.now.power_watts),
            _number(usage.mean_power_watts),
            _number(usage.now.enforced_power_limit_watts, 0),
            _number(usage.now.graphics_clock_megahertz, 0),
        )
    return table


def _sum(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(sum(known)) if known else UNKNOWN


def _energy(usage: GpuUsage) -> str:
    """The energy, with the bound of its error where power was integrated."""
    bound = "" if usage.uncertainty_joules is None else f" ± {_number(usage.uncertainty_joules)}"
    return f"{_number(usage.energy_joules)}{bound}"


def _number(value: float | None, digits: int = 1) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


COMMAND = Command(
    description="Shows the energy that each GPU used since the start, its power, limit and clock: a live table until "
    "Ctrl-C, or for --seconds. A GPU without an energy counter shows the integral of its power, with a bound of the "
    "error. It only reads, and needs neither root nor an agent.",
    example="  wattloop monitor\n  wattloop monitor --seconds 10 --format json",
    configure=add_arguments,
    run=run,
)
