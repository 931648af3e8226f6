"""Injected faults: the calls that fail, in all processes, and their end."""

import os
import subprocess
import sys
import threading
from types import ModuleType

import pytest

import nvml_simulator
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import OperationError, UsageError

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
LOST = 15


def codes_of(nvml: ModuleType, calls: int, *, gpu: int = 0) -> list[int]:
    """Return the codes of a number of energy calls on a GPU."""
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
    codes = []
    for _ in range(calls):
        try:
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            codes.append(0)
        except nvml.NVMLError as error:
            codes.append(error.value)
    return codes


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [(1, None, [15] * 5), (1, 1, [15, 0, 0, 0, 0]), (3, 2, [0, 0, 15, 15, 0]), (4, None, [0, 0, 0, 15, 15])],
)
def test_a_fault_affects_a_number_of_calls_from_the_first_one_on(
    first: int, count: int | None, expected: list[int], make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    make_machine().inject_fault(ENERGY, code=LOST, first_call=first, count=count)
    assert codes_of(start_nvml(), 5) == expected


def test_a_lost_gpu_fails_all_calls_and_others_are_not_affected(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(count=2)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    ticket = machine.inject_fault("*", code=LOST, gpu=1)
    for call in (nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetUUID):
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(handle)
    assert codes_of(nvml, 2, gpu=0) == [0, 0]
    for gpus in (1, [0, 1]):
        with pytest.raises(OperationError, match="is lost"):
            machine.occupy(gpus, 1.0, 0.5)
    machine.occupy(0, 1.0, 0.5)
    machine.clear_fault(ticket)
    assert codes_of(nvml, 1, gpu=1) == [0]
    machine.occupy(1, 1.0, 0.5)


def test_a_failed_initialization_leaves_nvml_uninitialized(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine()
    machine.inject_fault("nvmlInitWithFlags", code=9, count=1)
    with pytest.raises(Exception, match="Driver Not Loaded"):
        start_nvml()
    nvml = start_nvml()
    assert nvml.nvmlDeviceGetCount() == 4


def test_a_hanging_call_blocks_no_other_and_ends_with_the_fault(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(count=2)
    nvml = start_nvml()
    machine.inject_fault(ENERGY, gpu=0, delay_seconds=3600.0)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(codes_of(nvml, 1)))
    thread.start()
    while machine.describe().calls.get(ENERGY, 0) == 0:
        pass
    assert codes_of(nvml, 1, gpu=1) == [0]
    assert codes == []
    machine.clear_faults()
    thread.join(timeout=60)
    assert codes == [0]


def test_a_shutdown_during_a_hanging_call_is_safe(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(count=1)
    nvml = start_nvml()
    machine.inject_fault(ENERGY, delay_seconds=3600.0, code=LOST)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(codes_of(nvml, 1)))
    thread.start()
    while machine.describe().calls.get(ENERGY, 0) == 0:
        pass
    nvml.nvmlShutdown()
    machine.clear_faults()
    thread.join(timeout=60)
    assert codes == [LOST]


def test_faults_affect_every_process(make_machine: MakeMachine) -> None:
    machine = make_machine()
    machine.inject_fault("nvmlDeviceGetCount_v2", code=999, count=1)
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    script = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()"
    command = [sys.executable, "-c", script]
    assert (
        "Unknown Error" in subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    )
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=False).returncode == 0


def test_calls_are_counted(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine()
    codes_of(start_nvml(), 7)
    calls = machine.describe().calls
    assert calls == {"nvmlInitWithFlags": 1, "nvmlDeviceGetHandleByIndex_v2": 1, ENERGY: 7}


@pytest.mark.parametrize(
    "invalid",
    [{"function": "nvmlDeviceGetNothing"}, {"first_call": 0}, {"count": 0}, {"delay_seconds": -1.0}, {"gpu": 9}],
)
def test_an_invalid_fault_is_rejected(invalid: dict[str, object], make_machine: MakeMachine) -> None:
    with pytest.raises(UsageError, match="found"):
        make_machine().inject_fault(**{"function": ENERGY, **invalid})  # type: ignore[arg-type]


def test_the_number_of_faults_is_limited(make_machine: MakeMachine) -> None:
    machine = make_machine()
    for _ in range(32):
        machine.inject_fault(ENERGY, code=LOST)
    with pytest.raises(OperationError, match="clear one"):
        machine.inject_fault(ENERGY, code=LOST)
    machine.clear_faults()
    assert machine.inject_fault(ENERGY, code=LOST) == 33


def test_another_actor_changes_a_limit_despite_permission_and_faults(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(permission="nobody", model="A100")
    machine.inject_fault("*", code=LOST)
    machine.set_power_limit_as_another_actor(0, 250.5)
    assert machine.describe().gpus[0].power_limit_watts == 250.5
    with pytest.raises(UsageError, match="within the range"):
        machine.set_power_limit_as_another_actor(0, 401)
