"""Clocks of every simulated model through the real pynvml."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.refusals import Reason, RequestError

Make = Callable[[str], tuple[Machine, LeaseManager]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    nvml_simulator.load()
    opened: list[Callable[[], None]] = []

    def made(model: str) -> tuple[Machine, LeaseManager]:
        state = nvml_simulator.create(tmp_path / "gpus", model=model, count=1, clock="virtual", permission="anyone")
        monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(state))
        machine, devices = Machine(state), NvmlDevices()
        lease_manager = LeaseManager(devices, tmp_path / "state", "boot", lambda: 0.0)
        lease_manager.recover()
        opened.extend((lease_manager.close, devices.close, machine.close))
        return machine, lease_manager

    yield made
    for close in opened:
        close()


def hold(machine: Machine, lease_manager: LeaseManager, setting: GpuSetting, megahertz: float) -> float | None:
    (held,) = lease_manager.hold(HoldRequest((machine.describe().gpus[0].uuid,), setting, megahertz, "owner"))
    return held.lease.held


@pytest.mark.parametrize(
    ("model", "setting", "requested", "held"),
    [
        ("A40", GpuSetting.GRAPHICS_CLOCK, 1000.0, 1005),
        ("V100", GpuSetting.GRAPHICS_CLOCK, 1000.0, 997),
        ("A100", GpuSetting.GRAPHICS_CLOCK, 1000.0, 1005),
        ("H100", GpuSetting.GRAPHICS_CLOCK, 211.0, 210),
        ("H200", GpuSetting.GRAPHICS_CLOCK, 1979.0, 1980),
        ("A40", GpuSetting.MEMORY_CLOCK, 6000.0, 6501),
        ("A100", GpuSetting.MEMORY_CLOCK, 1593.0, 1593),
        ("H200", GpuSetting.MEMORY_CLOCK, 2600.0, 2201),
        ("H200", GpuSetting.MEMORY_CLOCK, 2702.0, 3201),
    ],
)
def test_a_clock_is_locked_at_the_step_nearest_to_the_requested_value(
    model: str, setting: GpuSetting, requested: float, held: int, make: Make
) -> None:
    machine, lease_manager = make(model)
    assert hold(machine, lease_manager, setting, requested) == held
    (gpu,) = machine.describe().gpus
    graphics, memory = gpu.locked_graphics_clocks_megahertz, gpu.locked_memory_clocks_megahertz
    assert (graphics if setting is GpuSetting.GRAPHICS_CLOCK else memory) == (held, held)
    lease_manager.release()
    (gpu,) = machine.describe().gpus
    assert (gpu.locked_graphics_clocks_megahertz, gpu.locked_memory_clocks_megahertz) == (None, None)


def test_a_device_without_memory_clock_locks_refuses_and_leaves_no_lease(make: Make) -> None:
    machine, lease_manager = make("V100")
    with pytest.raises(RequestError) as refused:
        hold(machine, lease_manager, GpuSetting.MEMORY_CLOCK, 877.0)
    assert refused.value.reason is Reason.NOT_SUPPORTED
    assert lease_manager.leases == {}
    assert hold(machine, lease_manager, GpuSetting.GRAPHICS_CLOCK, 1000.0) == 997
    lease_manager.release()
    assert lease_manager.leases == {}
