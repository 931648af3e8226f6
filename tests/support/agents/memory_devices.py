"""The power controller's devices in memory; test_devices_contract.py compares them with NVML's."""

from dataclasses import dataclass, field

from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.refusals import Reason, RequestError

CLOCK_STEPS = tuple(float(step) for step in range(210, 1411, 15))


@dataclass
class MemoryDevices:
    """GPUs that remember their values; those in `failing` refuse to be set."""

    limits: dict[str, float] = field(default_factory=dict)
    clocks: dict[str, float | None] = field(default_factory=dict)
    minimum: float = 100.0
    maximum: float = 400.0
    failing: set[str] = field(default_factory=set)

    def allowed(self, gpu: str, setting: GpuSetting) -> AllowedRange:
        self._known(gpu)
        if setting is GpuSetting.POWER_LIMIT:
            return AllowedRange(self.minimum, self.maximum)
        return AllowedRange(CLOCK_STEPS[0], CLOCK_STEPS[-1], CLOCK_STEPS)

    def current(self, gpu: str, setting: GpuSetting) -> float | None:
        self._known(gpu)
        return self.limits[gpu] if setting is GpuSetting.POWER_LIMIT else None

    def enforced(self, gpu: str, setting: GpuSetting) -> float | None:
        return self.current(gpu, setting)

    def put(self, gpu: str, setting: GpuSetting, value: float | None) -> None:
        self._known(gpu)
        if gpu in self.failing:
            raise RequestError(Reason.DEVICE_FAILED, f"GPU {gpu}: fails")
        if setting is GpuSetting.POWER_LIMIT:
            self.limits[gpu] = self.maximum if value is None else value
        else:
            self.clocks[gpu] = value

    def _known(self, gpu: str) -> None:
        if gpu not in self.limits:
            raise RequestError(Reason.UNKNOWN_GPU, f"GPU {gpu}: there is none")
