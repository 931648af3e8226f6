"""What the monitor reads from GPUs, and the interfaces to the driver that tests replace.

Every method of the protocols raises `RequestError` with the driver's error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent import EnergyReading, GpuDescription
from wattloop.wire.node_energy import Range
from wattloop_agent.monitor.policies.policy_limits import LimitedSetting


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


class ReadableGpus(SampledGpus, Protocol):
    """GPUs that the meter reads."""

    def describe(self, seen: Callable[[str], bool]) -> list[GpuDescription]:
        """The GPUs that satisfy a predicate on their uuid; without limits those that fail, unless all do.

        `found_watts` is the current limit, and no `allowed_…` is set, since leases and policies are
        not known here.
        """

    def uuids(self) -> list[str]:
        """All GPUs, by index."""

    def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs, in this order."""

    def uuid_by_device(self) -> dict[str, str]:
        """Each GPU's uuid, by its device node (``nvidia0``) and by its MIG devices' uuids."""

    def product(self, uuid: str) -> str:
        """A GPU's model."""

    def accepted(self, uuid: str, setting: LimitedSetting) -> Range:
        """The lowest and the highest value that a GPU accepts."""
