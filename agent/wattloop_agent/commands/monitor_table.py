"""The table of ``wattloop monitor``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from wattloop.printable import printable
from wattloop_agent.commands.energy_use import GpuUsage

UNKNOWN = "–"


def usage_table(usages: Sequence[GpuUsage], lost: Mapping[int, str]) -> Table:
    """One row per GPU, and their sum; below it, by index, the GPUs that NVML can't enumerate."""
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
            _number(usage.energy_joules),
            _number(usage.now.power_watts),
            _number(usage.mean_power_watts),
            _number(usage.now.enforced_power_limit_watts, 0),
            _number(usage.now.graphics_clock_megahertz, 0),
        )
    return table


def _sum(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(sum(known)) if known else UNKNOWN


def _number(value: float | None, digits: int = 1) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"
