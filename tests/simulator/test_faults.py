"""Injected faults: which calls they strike, in which process, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

import nvml_simulator
from nvml_simulator import Machine
from wattloop.errors import OperationError, UsageError

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
LOST = 15


def answers(nvml: ModuleType, calls: int, *, gpu: int = 0) -> list[int]:
    """The codes of so many calls for the energy of a GPU."""
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
def test_a_fault_strikes_from_a_call_on_so_many_times(
    first: int,
    count: int | None,
    expected: list[int],
    make_machine: Callable[..., Machine],
    start_nvml: Callable[[], ModuleType],
) -> None:
    machine = make_machine()
    machine.inject_fault(ENERGY, code=LOST, first_call=first, count=count)
    assert answers(start_nvml(), 5) == expected


def test_a_lost_gpu_answers_nothing_and_the_others_go_on(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine(count=2)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    ticket = machine.inject_fault("*", code=LOST, gpu=1)
    for call in (nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetUUID):
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(handle)
    assert answers(nvml, 2, gpu=0) == [0, 0]
    for gpus in (1, [0, 1]):
        with pytest.raises(OperationError, match="is lost"):
            machine.occupy(gpus, 1.0, 0.5)
    machine.occupy(0, 1.0, 0.5)
    machine.clear_fault(ticket)
    assert answers(nvml, 1, gpu=1) == [0]
    machine.occupy(1, 1.0, 0.5)


def test_a_failing_initialisation_leaves_nvml_uninitialised(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine()
    machine.inject_fault("nvmlInitWithFlags", code=9, count=1)
    with pytest.raises(Exception, match="Driver Not Loaded"):
        start_nvml()
    nvml = start_nvml()
    assert nvml.nvmlDeviceGetCount() == 4


def test_a_hanging_call_holds_up_nobody_else_and_ends_when_the_fault_is_cleared(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine(count=2)
    nvml = start_nvml()
    machine.inject_fault(ENERGY, gpu=0, delay_seconds=3600.0)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(answers(nvml, 1)))
    thread.start()
    while machine.describe().calls.get(ENERGY, 0) == 0:
        pass
    assert answers(nvml, 1, gpu=1) == [0]
    assert codes == []
    machine.clear_faults()
    thread.join(timeout=10)
    assert codes == [0]


def test_nvml_shut_down_under_a_hanging_call_does_no_harm(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine(count=1)
    nvml = start_nvml()
    machine.inject_fault(ENERGY, delay_seconds=3600.0, code=LOST)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(answers(nvml, 1)))
    thread.start()
    while machine.describe().calls.get(ENERGY, 0) == 0:
        pass
    nvml.nvmlShutdown()
    machine.clear_faults()
    thread.join(timeout=10)
    assert codes == [LOST]


def test_faults_strike_in_every_process(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine()
    machine.inject_fault("nvmlDeviceGetCount_v2", code=999, count=1)
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    script = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()"
    command = [sys.executable, "-c", script]
    assert (
        "Unknown Error" in subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    )
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=False).returncode == 0


def test_calls_are_counted(make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]) -> None:
    machine = make_machine()
    answers(start_nvml(), 7)
    calls = machine.describe().calls
    assert calls == {"nvmlInitWithFlags": 1, "nvmlDeviceGetHandleByIndex_v2": 1, ENERGY: 7}


@pytest.mark.parametrize(
    "wrong",
    [{"function": "nvmlDeviceGetNothing"}, {"first_call": 0}, {"count": 0}, {"delay_seconds": -1.0}, {"gpu": 9}],
)
def test_a_fault_that_can_not_be_is_refused(wrong: dict[str, object], make_machine: Callable[..., Machine]) -> None:
    with pytest.raises(UsageError, match="found"):
        make_machine().inject_fault(**{"function": ENERGY, **wrong})  # type: ignore[arg-type]


def test_faults_have_an_end(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine()
    for _ in range(32):
        machine.inject_fault(ENERGY, code=LOST)
    with pytest.raises(OperationError, match="clear one"):
        machine.inject_fault(ENERGY, code=LOST)
    machine.clear_faults()
    assert machine.inject_fault(ENERGY, code=LOST) == 33


def test_another_actor_changes_a_limit_past_permission_and_faults(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine(permission="nobody", model="A100")
    machine.inject_fault("*", code=LOST)
    machine.set_power_limit_as_another_actor(0, 250.5)
    assert machine.describe().gpus[0].power_limit_watts == 250.5
    with pytest.raises(UsageError, match="within the range"):
        machine.set_power_limit_as_another_actor(0, 401)
