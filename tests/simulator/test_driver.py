"""Energy counter resets, and driver restarts while programs use the driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import UsageError
from wattloop.gpus.nvml import driver_load


def test_a_reset_counter_counts_from_zero(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    machine.idle([0, 1], 2.0)
    before = machine.describe().gpus
    machine.reset_energy_counter(before[0].uuid)
    after = machine.describe().gpus
    assert after[0].counter_millijoules == 0
    assert after[0].energy_microjoules == before[0].energy_microjoules
    assert after[1] == before[1]
    machine.idle([0, 1], 10.0)
    # 55 W at idle; the counter lags by a step of 100 ms at most.
    assert 55_000 * 9.9 <= machine.describe().gpus[0].counter_millijoules <= 55_000 * 10


def test_only_an_existing_gpu_can_be_reset(make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="found GPU 4"):
        make_machine(count=4).reset_energy_counter(4)


def test_nvml_cannot_be_initialized_without_a_driver(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(count=1)
    machine.stop_driver()
    assert not machine.describe().driver_loaded
    with pytest.raises(Exception, match="Driver Not Loaded") as raised:
        start_nvml()
    assert raised.value.value == 9  # type: ignore[attr-defined]
    machine.start_driver()
    assert start_nvml().nvmlDeviceGetCount() == 1


@pytest.mark.parametrize("code", [1, 15, 999])
def test_a_program_must_initialize_nvml_again_after_a_restart(
    code: int, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(count=2)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    machine.restart_driver(stale_code=code)
    for call in (nvml.nvmlDeviceGetCount, lambda: nvml.nvmlDeviceGetUUID(handle)):
        with pytest.raises(nvml.NVMLError) as raised:
            call()
        assert raised.value.value == code
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(1)) == machine.describe().gpus[1].uuid


def test_one_initialization_is_enough_after_a_restart(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(count=1)
    nvml = start_nvml()
    start_nvml()
    machine.restart_driver()
    start_nvml()
    assert nvml.nvmlDeviceGetCount() == 1
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlShutdown()


def test_a_restart_resets_counters_limits_and_clocks(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="H200", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    nvml.nvmlDeviceSetGpuLockedClocks(handle, 990, 990)
    nvml.nvmlDeviceSetMemoryLockedClocks(handle, 2201, 2201)
    nvml.nvmlDeviceSetApplicationsClocks(handle, 2201, 990)
    machine.idle(0, 5.0)
    machine.stop_driver()
    stopped = machine.describe().gpus[0]
    assert stopped.power_limit_watts == 300.0
    machine.start_driver()
    (gpu,) = machine.describe().gpus
    assert gpu.counter_millijoules == 0
    assert gpu.energy_microjoules == stopped.energy_microjoules
    assert gpu.power_limit_watts == 700.0
    assert gpu.locked_graphics_clocks_megahertz is None
    assert gpu.locked_memory_clocks_megahertz is None
    assert gpu.application_clocks_megahertz is None


def test_starting_a_running_driver_changes_nothing(make_machine: MakeMachine) -> None:
    machine = make_machine(count=1)
    machine.set_power_limit_as_another_actor(0, 200)
    before = machine.describe()
    machine.start_driver()
    assert machine.describe() == before


def test_calls_of_a_stopped_driver_cannot_succeed(make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="found stale_code 0"):
        make_machine().stop_driver(stale_code=0)


def test_a_restart_affects_every_process(make_machine: MakeMachine) -> None:
    machine = make_machine(count=1)
    script = (
        "import pynvml; pynvml.nvmlInit(); print('open', flush=True); input()\n"
        "try: pynvml.nvmlDeviceGetCount()\n"
        "except pynvml.NVMLError_Uninitialized: print('stale')"
    )
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "open\n"
        machine.restart_driver()
        assert process.communicate("\n") == ("stale\n", None)


def test_each_driver_load_has_a_unique_id(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(count=1)
    nvml = start_nvml()
    first = driver_load()
    assert first == driver_load()
    machine.reset_energy_counter(0)
    assert first == driver_load(), "a reset of a GPU is not a driver load"
    machine.restart_driver()
    nvml.nvmlInit()
    assert driver_load() not in {first, None}


def test_a_real_driver_load_is_identified_by_its_folder_in_sysfs() -> None:
    modules = sorted(Path("/sys/module").iterdir())[:2]
    if not modules:
        pytest.skip("no sysfs on this machine")
    names = [driver_load(module) for module in modules]
    assert None not in names
    assert len(set(names)) == 2
    assert names == [driver_load(module) for module in modules]
