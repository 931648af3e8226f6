"""The GPUs that the power controller sets, by NVML."""

from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.nvml_gpus import NvmlGpus


class NvmlDevices(NvmlGpus):
    """Reads and sets GPUs by uuid. Every method raises `RequestError` with the device's or the driver's error."""

    def current(self, gpu: str, setting: GpuSetting) -> float | None:
        """The power limit that is set; None for clocks, since NVML does not report a lock."""
        device = self.gpu(gpu)
        with self.request_errors():
            return device.power_limit_watts() if setting is GpuSetting.POWER_LIMIT else None

    def enforced(self, gpu: str, setting: GpuSetting) -> float | None:
        """The power limit in force, whoever set it; None for clocks."""
        device = self.gpu(gpu)
        with self.request_errors():
            return device.enforced_power_limit_watts() if setting is GpuSetting.POWER_LIMIT else None

    def put(self, gpu: str, setting: GpuSetting, value: float | None) -> None:
        """Set a value; None: the vendor's default, an unlocked clock."""
        device = self.gpu(gpu)
        with self.request_errors():
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
