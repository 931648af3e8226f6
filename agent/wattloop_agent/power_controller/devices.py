"""The GPUs that the power controller sets: the interface, and its implementation by NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.nvml_gpus import NvmlGpus


class Devices(Protocol):
    """GPUs by uuid. Every method raises `RequestError` with the device's or the driver's error."""

    def allowed(self, gpu: str, setting: GpuSetting) -> AllowedRange:
        """The range that the device accepts."""

    def current(self, gpu: str, setting: GpuSetting) -> float | None:
        """The value that is set; None for clocks, since NVML does not report a lock."""

    def enforced(self, gpu: str, setting: GpuSetting) -> float | None:
        """The value in force, whoever set it; None where the device does not report it."""

    def put(self, gpu: str, setting: GpuSetting, value: float | None) -> None:
        """Set a value; None: the vendor's default, an unlocked clock."""


class NvmlDevices:
    """`Devices` by NVML.

    Args:
        library: See `NvmlGpus`.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._gpus = NvmlGpus(library)

    def close(self) -> None:
        """Close NVML; the next use reopens it."""
        self._gpus.close()

    def allowed(self, gpu: str, setting: GpuSetting) -> AllowedRange:
        """The range that the device accepts."""
        return self._gpus.allowed(gpu, setting)

    def current(self, gpu: str, setting: GpuSetting) -> float | None:
        """The power limit that is set; None for clocks."""
        device = self._gpus.gpu(gpu)
        if setting is not GpuSetting.POWER_LIMIT:
            return None
        with self._gpus.request_errors():
            return device.power_limit_watts()

    def enforced(self, gpu: str, setting: GpuSetting) -> float | None:
        """The power limit in force; None for clocks."""
        device = self._gpus.gpu(gpu)
        if setting is not GpuSetting.POWER_LIMIT:
            return None
        with self._gpus.request_errors():
            return device.enforced_power_limit_watts()

    def put(self, gpu: str, setting: GpuSetting, value: float | None) -> None:
        """Set a value; None: the vendor's default, an unlocked clock."""
        device = self._gpus.gpu(gpu)
        with self._gpus.request_errors():
            match setting, value:
                case GpuSetting.POWER_LIMIT, float(watts):
                    device.set_power_limit_watts(watts)
                case GpuSetting.POWER_LIMIT, None:
                    device.set_power_limit_watts(device.default_power_limit_watts())
                case GpuSetting.GRAPHICS_CLOCK, None:
                    device.reset_graphics_clocks()
                case GpuSetting.GRAPHICS_CLOCK, float(megahertz):
                    device.lock_graphics_clocks(round(megahertz), round(megahertz))
                case GpuSetting.MEMORY_CLOCK, None:
                    device.reset_memory_clocks()
                case GpuSetting.MEMORY_CLOCK, float(megahertz):
                    device.lock_memory_clocks(round(megahertz), round(megahertz))
