"""What a GPU does, as metrics show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuCondition:
    """What a GPU does now.

    Attributes:
        uuid: The GPU.
        name: Its model.
        time_seconds: The clock that its energy is integrated on.
        energy_millijoules: Its cumulative counter; None: it has none.
        power_watts: What it draws; None: it does not say.
        power_limit_watts: The limit that is set; None: it has none.
        enforced_power_limit_watts: The limit in force.
        graphics_clock_megahertz: Its clock; None: it does not say.
        problem: Why something is not known; empty: all is.
    """

    uuid: str
    name: str
    time_seconds: float
    energy_millijoules: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    enforced_power_limit_watts: float | None = None
    graphics_clock_megahertz: float | None = None
    problem: str = ""
