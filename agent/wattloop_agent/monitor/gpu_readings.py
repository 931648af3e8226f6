"""What the monitor reads from GPUs, and the interface of the sampler to the driver, which tests replace.

Every method of the protocol raises `RequestError` with the driver's error.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop.energy.gpu_reading import GpuReading


@dataclass(frozen=True)
class GpuStatus:
    """The current state of a GPU, as metrics and `wattloop monitor` show it.

    Attributes:
        uuid: The GPU.
        name: Its model.
        time_seconds: The clock that its energy is integrated on.
        energy_millijoules: Its cumulative counter; None: it has none.
        power_watts: Its power draw; None: not reported.
        power_limit_watts: The limit that is set; None: it has none.
        enforced_power_limit_watts: The limit in force.
        graphics_clock_megahertz: Its clock; None: not reported.
        problem: Why a value is missing although the GPU supports it; empty: none is.
        max_power_limit_watts: The highest limit that it accepts; None: not reported.
        is_partitioned: Whether MIG is enabled on it, as last reported.
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
    max_power_limit_watts: float | None = None
    is_partitioned: bool = False


class SampledGpus(Protocol):
    """GPUs that the sampler reads."""

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        """Counters and power of these GPUs (None: of all) in as few calls as possible.

        Of `uncounted` GPUs it reads power only.
        """

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        """The status of all GPUs, given samples of all; None: take them."""
