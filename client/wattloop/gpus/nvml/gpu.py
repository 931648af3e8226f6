"""One GPU of NVML, in watts and megahertz. Converts NVML's milliwatts."""

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from wattloop.gpus.nvml.pynvml_binding import GpuNotFound, NotSupported, NvmlError, invoke, simulated_clock_nanoseconds

_CLOCK_GRAPHICS = 0
_FIELD_POWER_INSTANT = 186


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine, valid while the `wattloop.gpus.nvml.Session` that returned it is open.

    Every method calls NVML, which takes from microseconds to some milliseconds under load, and raises
    `wattloop.gpus.nvml.NvmlError`: `NotSupported` if the GPU lacks the feature, `NoPermission` if the call
    needs root, `GpuLost` if the GPU no longer responds.

    Attributes:
        uuid: ``GPU-…``. Use it to identify a GPU: a container's indices differ from the host's.
        index: NVML's index in this process.
        name: The model, as NVML names it.
    """

    uuid: str
    index: int
    name: str
    handle: Any = field(repr=False, compare=False)

    # Power

    def power_limit_watts(self) -> float:
        """The limit requested last."""
        return self._number("nvmlDeviceGetPowerManagementLimit") / 1e3

    def enforced_power_limit_watts(self) -> float:
        """The limit in force: the lowest of the requested limit and the limits of other actors."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit") / 1e3

    def default_power_limit_watts(self) -> float:
        """The limit after a restart of the driver."""
        return self._number("nvmlDeviceGetPowerManagementDefaultLimit") / 1e3

    def power_limit_range_watts(self) -> tuple[float, float]:
        """The lowest and the highest limit that can be set."""
        lowest, highest = self._invoke("nvmlDeviceGetPowerManagementLimitConstraints")
        return int(lowest) / 1e3, int(highest) / 1e3

    def set_power_limit_watts(self, watts: float) -> None:
        """Set the limit, to the milliwatt. Needs root.

        Raises:
            InvalidArgument: The limit is outside `power_limit_range_watts`.
        """
        self._invoke("nvmlDeviceSetPowerManagementLimit", round(watts * 1e3))

    def power_watts(self) -> float:
        """The GPU's power: the mean of the last second on Ampere and newer (not A100), else the last reading."""
        return self._number("nvmlDeviceGetPowerUsage") / 1e3

    def instant_power_watts(self) -> float:
        """The last reading of the power, not averaged, to integrate on GPUs without an energy counter.

        Falls back to `power_watts` on GPUs older than Ampere, where that is the last reading.
        """
        (value,) = self._invoke("nvmlDeviceGetFieldValues", [_FIELD_POWER_INSTANT])
        if value.nvmlReturn != 0:
            return self.power_watts()
        return int(value.value.uiVal) / 1e3

    # Energy

    def energy_millijoules(self) -> int:
        """Energy since the driver was loaded, in millijoules. Updates every 20 to 100 ms. Volta and newer."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption")

    def clock_seconds(self) -> float:
        """The clock to measure this GPU's energy against, in seconds.

        The system's monotonic clock. On simulated GPUs the simulator's clock, which may run faster or
        advance only with work.
        """
        simulated = simulated_clock_nanoseconds(self.handle)
        return time.monotonic() if simulated is None else simulated / 1e9

    # Clocks

    def memory_clocks_megahertz(self) -> tuple[int, ...]:
        """The supported memory clocks, in descending order."""
        return tuple(int(clock) for clock in self._invoke("nvmlDeviceGetSupportedMemoryClocks"))

    def graphics_clocks_megahertz(self) -> tuple[int, ...]:
        """The supported graphics (SM) clocks at the highest memory clock, in descending order."""
        memory = self.memory_clocks_megahertz()[0]
        return tuple(int(clock) for clock in self._invoke("nvmlDeviceGetSupportedGraphicsClocks", memory))

    def graphics_clock_megahertz(self) -> int:
        """The current graphics clock."""
        return self._number("nvmlDeviceGetClockInfo", _CLOCK_GRAPHICS)

    def lock_graphics_clocks(self, min_megahertz: int, max_megahertz: int) -> None:
        """Lock the graphics clock to a range, ends included. Needs root. NVML cannot read the lock back."""
        self._invoke("nvmlDeviceSetGpuLockedClocks", min_megahertz, max_megahertz)

    def reset_graphics_clocks(self) -> None:
        """Unlock the graphics clock. Needs root."""
        self._invoke("nvmlDeviceResetGpuLockedClocks")

    def lock_memory_clocks(self, min_megahertz: int, max_megahertz: int) -> None:
        """Lock the memory clock to a range. Needs root; Ampere and newer."""
        self._invoke("nvmlDeviceSetMemoryLockedClocks", min_megahertz, max_megahertz)

    def reset_memory_clocks(self) -> None:
        """Unlock the memory clock. Needs root."""
        self._invoke("nvmlDeviceResetMemoryLockedClocks")

    # Identity

    def compute_processes(self) -> tuple[int, ...]:
        """PIDs of the processes with a compute context on the GPU, as the driver knows them; see `lists_all_processes`.

        Raises:
            NoPermission: MIG is enabled on the GPU, and this process may not see its parts.
        """
        return tuple(int(each.pid) for each in self._invoke("nvmlDeviceGetComputeRunningProcesses"))

    def is_partitioned(self) -> bool:
        """Whether MIG is enabled: limits and energy then belong to several owners together."""
        try:
            current, _pending = self._invoke("nvmlDeviceGetMigMode")
        except NotSupported:
            return False
        return bool(current)

    def mig_device_uuids(self) -> tuple[str, ...]:
        """``MIG-…`` uuids of the GPU's MIG devices; empty if MIG is disabled or no device exists."""
        if not self.is_partitioned():
            return ()
        uuids = []
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount")):
            try:
                part = self._invoke("nvmlDeviceGetMigDeviceHandleByIndex", index)
            except GpuNotFound:
                # Indices of MIG devices may have gaps.
                continue
            uuids.append(str(invoke("nvmlDeviceGetUUID", part, gpu=self.uuid)))
        return tuple(uuids)

    @cached_property
    def minor_number(self) -> int:
        """The number in the name of the GPU's device node, ``/dev/nvidia<number>``."""
        return self._number("nvmlDeviceGetMinorNumber")

    def _invoke(self, call: str, *arguments: object) -> Any:
        return invoke(call, self.handle, *arguments, gpu=self.uuid)

    def _number(self, call: str, *arguments: object) -> int:
        return int(self._invoke(call, *arguments))


class EnergyCounters:
    """Reads the energy counters of GPUs, and asks those that have none only once.

    GPUs older than Volta have none, and some drivers refuse it.
    """

    def __init__(self) -> None:
        self._without: set[str] = set()

    def is_missing(self, gpu: Gpu) -> bool:
        """Whether a GPU was asked and has no counter."""
        return gpu.uuid in self._without

    def millijoules(self, gpu: Gpu) -> int | None:
        """The counter of a GPU; None if it has none.

        Raises:
            NvmlError: The GPU has a counter, but did not report it.
        """
        if self.is_missing(gpu):
            return None
        try:
            return gpu.energy_millijoules()
        except NotSupported:
            self._without.add(gpu.uuid)
            return None


class Session:
    """NVML from `open` to `close`, or in a ``with`` statement. Sessions may overlap: NVML counts references.

    Example:
        ``with Session() as nvml: print([gpu.name for gpu in nvml.gpus()])``
    """

    def __init__(self) -> None:
        self._is_open = False

    def open(self) -> Self:
        """Initialise NVML.

        Raises:
            LibraryMissing: pynvml, the library or the driver is missing.
            NvmlError: NVML returned another error.
        """
        if not self._is_open:
            invoke("nvmlInit")
            self._is_open = True
        return self

    def close(self) -> None:
        """Shut NVML down; the session's GPUs become invalid. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            invoke("nvmlShutdown")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs visible to this process, by index."""
        return tuple(self._gpu(invoke("nvmlDeviceGetHandleByIndex", index)) for index in self._indices())

    def gpus_or_errors(self) -> tuple[Gpu | NvmlError, ...]:
        """The same, with NVML's error in place of a GPU without a handle, such as one that fell off the bus."""

        def gpu_or_error(index: int) -> Gpu | NvmlError:
            try:
                return self._gpu(invoke("nvmlDeviceGetHandleByIndex", index))
            except NvmlError as error:
                return error

        return tuple(gpu_or_error(index) for index in self._indices())

    def gpu(self, uuid: str) -> Gpu:
        """The GPU with this UUID.

        Raises:
            GpuNotFound: No such GPU is visible to this process.
        """
        return self._gpu(invoke("nvmlDeviceGetHandleByUUID", uuid.encode(), gpu=uuid))

    def _indices(self) -> range:
        return range(int(invoke("nvmlDeviceGetCount")))

    def _gpu(self, handle: Any) -> Gpu:
        uuid = str(invoke("nvmlDeviceGetUUID", handle))
        return Gpu(
            uuid=uuid,
            index=int(invoke("nvmlDeviceGetIndex", handle, gpu=uuid)),
            name=str(invoke("nvmlDeviceGetName", handle, gpu=uuid)),
            handle=handle,
        )
