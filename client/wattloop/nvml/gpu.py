"""One GPU in our units. NVML's milliwatts and millijoules end here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wattloop.nvml.errors import GpuNotFound, NotSupported
from wattloop.nvml.library import invoke, simulated_clock_nanoseconds

_CLOCK_GRAPHICS = 0
_FIELD_POWER_INSTANT = 186


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine; `wattloop.nvml.Session` gives them out, and they live as long as it is open.

    Every method calls NVML, which takes from microseconds to some milliseconds under load, and raises
    `wattloop.nvml.NvmlError`: `NotSupported` where the GPU has no such thing, `NoPermission` where a power
    controller needs root,
    `GpuLost` where the GPU does not answer any more.

    Attributes:
        uuid: ``GPU-…``, the name to use everywhere: a container's indices are not the host's.
        index: NVML's index, in this process.
        name: The model as NVML names it.
    """

    uuid: str
    index: int
    name: str
    handle: Any = field(repr=False, compare=False)

    # Power

    def power_limit_watts(self) -> float:
        """The limit that was asked for last."""
        return self._number("nvmlDeviceGetPowerManagementLimit") / 1e3

    def enforced_power_limit_watts(self) -> float:
        """The limit in force: the least of what was asked for and what other actors hold the GPU to."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit") / 1e3

    def default_power_limit_watts(self) -> float:
        """The limit after a restart of the driver."""
        return self._number("nvmlDeviceGetPowerManagementDefaultLimit") / 1e3

    def power_limit_range_watts(self) -> tuple[float, float]:
        """The least and the largest limit that can be set."""
        least, largest = self._invoke("nvmlDeviceGetPowerManagementLimitConstraints")
        return int(least) / 1e3, int(largest) / 1e3

    def set_power_limit_watts(self, watts: float) -> None:
        """Sets the limit, to the milliwatt. Needs root.

        Raises:
            InvalidArgument: Outside `power_limit_range_watts`.
        """
        self._invoke("nvmlDeviceSetPowerManagementLimit", round(watts * 1e3))

    def power_watts(self) -> float:
        """What the GPU draws: the mean of the last second from Ampere on (not A100), before that the last reading."""
        return self._number("nvmlDeviceGetPowerUsage") / 1e3

    def instant_power_watts(self) -> float:
        """The last reading of the power, without a mean: what to integrate where there is no energy counter.

        Falls back to `power_watts` on GPUs that do not have it apart (before Ampere, where that is the last reading).
        """
        (value,) = self._invoke("nvmlDeviceGetFieldValues", [_FIELD_POWER_INSTANT])
        if value.nvmlReturn != 0:
            return self.power_watts()
        return int(value.value.uiVal) / 1e3

    # Energy

    def energy_millijoules(self) -> int:
        """The energy counter: since the driver was loaded, in steps of 20 to 100 ms. Volta and newer."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption")

    def clock_seconds(self) -> float:
        """The clock that this GPU's energy is to be measured against.

        The system's monotonic clock; with simulated GPUs the simulator's, which may go faster, or move with work alone.
        """
        simulated = simulated_clock_nanoseconds(self.handle)
        return time.monotonic() if simulated is None else simulated / 1e9

    # Clocks

    def memory_clocks_megahertz(self) -> tuple[int, ...]:
        """The supported memory clocks, falling."""
        return tuple(int(clock) for clock in self._invoke("nvmlDeviceGetSupportedMemoryClocks"))

    def graphics_clocks_megahertz(self) -> tuple[int, ...]:
        """The supported graphics (SM) clocks at the highest memory clock, falling."""
        memory = self.memory_clocks_megahertz()[0]
        return tuple(int(clock) for clock in self._invoke("nvmlDeviceGetSupportedGraphicsClocks", memory))

    def graphics_clock_megahertz(self) -> int:
        """The graphics clock it runs at."""
        return self._number("nvmlDeviceGetClockInfo", _CLOCK_GRAPHICS)

    def lock_graphics_clocks(self, min_megahertz: int, max_megahertz: int) -> None:
        """Holds the graphics clock within a range, ends included. Needs root. NVML offers no way to read it back."""
        self._invoke("nvmlDeviceSetGpuLockedClocks", min_megahertz, max_megahertz)

    def reset_graphics_clocks(self) -> None:
        """Takes the lock off. Needs root."""
        self._invoke("nvmlDeviceResetGpuLockedClocks")

    def lock_memory_clocks(self, min_megahertz: int, max_megahertz: int) -> None:
        """Holds the memory clock within a range. Needs root; Ampere and newer."""
        self._invoke("nvmlDeviceSetMemoryLockedClocks", min_megahertz, max_megahertz)

    def reset_memory_clocks(self) -> None:
        """Takes the memory clock's lock off. Needs root."""
        self._invoke("nvmlDeviceResetMemoryLockedClocks")

    # What it is

    def is_partitioned(self) -> bool:
        """Whether MIG is on: then limits and energy are of several owners together."""
        try:
            current, _pending = self._invoke("nvmlDeviceGetMigMode")
        except NotSupported:
            return False
        return bool(current)

    def mig_device_uuids(self) -> tuple[str, ...]:
        """``MIG-…`` of each MIG device that it is cut into; none: MIG is off, or the GPU has none."""
        if not self.is_partitioned():
            return ()
        uuids = []
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount")):
            try:
                part = self._invoke("nvmlDeviceGetMigDeviceHandleByIndex", index)
            except GpuNotFound:
                # Between two cuts an index may be free.
                continue
            uuids.append(str(invoke("nvmlDeviceGetUUID", part, gpu=self.uuid)))
        return tuple(uuids)

    @cached_property
    def minor_number(self) -> int:
        """The number in the name of its device node, ``/dev/nvidia<number>``."""
        return self._number("nvmlDeviceGetMinorNumber")

    def _invoke(self, call: str, *arguments: object) -> Any:
        return invoke(call, self.handle, *arguments, gpu=self.uuid)

    def _number(self, call: str, *arguments: object) -> int:
        return int(self._invoke(call, *arguments))
