"""GPUs in memory and GPUs through NVML behave the same behind one interface."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.memory_devices import MemoryDevices
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.refusals import Reason, RequestError

POWER, GRAPHICS, MEMORY = GpuSetting
Offered = tuple[MemoryDevices | NvmlDevices, str, Callable[[], float | None]]


@pytest.fixture(params=["in memory", "through NVML"])
def offered(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offered]:
    """Devices, a GPU of theirs, and the truth about its locked graphics clock."""
    if request.param == "in memory":
        memory = MemoryDevices({"GPU-0": 400.0})
        yield memory, "GPU-0", lambda: memory.clocks.get("GPU-0")
        return
    state = nvml_simulator.create(tmp_path / "gpus", model="A100", count=1, clock="virtual", permission="anyone")
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(state))
    nvml_simulator.load()
    devices = NvmlDevices()
    with nvml_simulator.Machine(state) as gpus:

        def locked() -> float | None:
            clocks = gpus.describe().gpus[0].locked_graphics_clocks_megahertz
            return None if clocks is None else clocks[0]

        yield devices, gpus.describe().gpus[0].uuid, locked
    devices.close()


def test_a_power_limit_that_was_set_is_current_and_enforced(offered: Offered) -> None:
    devices, gpu, _ = offered
    assert devices.current(gpu, POWER) == 400.0
    devices.put(gpu, POWER, 187.5)
    assert (devices.current(gpu, POWER), devices.enforced(gpu, POWER)) == (187.5, 187.5)
    devices.put(gpu, POWER, None)
    assert devices.current(gpu, POWER) == 400.0, "the vendor's default"


def test_the_range_of_power_limits_has_no_steps(offered: Offered) -> None:
    devices, gpu, _ = offered
    allowed = devices.allowed(gpu, POWER)
    assert (allowed.minimum, allowed.maximum, allowed.steps) == (100.0, 400.0, ())


def test_graphics_clocks_have_steps_in_ascending_order(offered: Offered) -> None:
    devices, gpu, _ = offered
    allowed = devices.allowed(gpu, GRAPHICS)
    assert list(allowed.steps) == sorted(set(allowed.steps))
    assert (allowed.minimum, allowed.maximum) == (allowed.steps[0], allowed.steps[-1])


def test_a_clock_is_locked_and_unlocked_but_its_lock_cannot_be_read(offered: Offered) -> None:
    devices, gpu, locked = offered
    assert (devices.current(gpu, GRAPHICS), locked()) == (None, None)
    devices.put(gpu, GRAPHICS, 1005.0)
    assert (devices.current(gpu, GRAPHICS), locked()) == (None, 1005.0)
    devices.put(gpu, GRAPHICS, None)
    assert locked() is None


@pytest.mark.parametrize("setting", GpuSetting)
def test_every_method_refuses_an_unknown_gpu(offered: Offered, setting: GpuSetting) -> None:
    devices, _, _ = offered
    calls = (
        lambda: devices.allowed("GPU-none", setting),
        lambda: devices.current("GPU-none", setting),
        lambda: devices.enforced("GPU-none", setting),
        lambda: devices.put("GPU-none", setting, 100.0),
    )
    for call in calls:
        with pytest.raises(RequestError) as caught:
            call()
        assert caught.value.reason is Reason.UNKNOWN_GPU
