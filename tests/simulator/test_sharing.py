"""Several processes on the same GPUs, and the effects of a killed one."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine
from support.agents.simulated_programs import FILL_GPU, HOLD_THE_LOCK, WORK_FOR_LONG, MakeMachine, StartNvml
from wattloop.errors import OperationError
from wattloop.gpus.nvml import lists_all_processes

WORK_IN_STEPS = """
import sys, nvml_simulator
machine = nvml_simulator.Machine(sys.argv[1])
print("working", flush=True)
while True:
    machine.occupy(0, 31.2, 0.37)
"""


class Child(subprocess.Popen[str]):
    """A process that works on the machine; killed at the end of the block."""

    def __init__(self, script: str, machine: Machine) -> None:
        super().__init__(
            [sys.executable, "-c", script, str(machine.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.stdout.readline().strip() in {"locked", "working", "full"}

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll a condition; the time limit of the test bounds the wait."""
    while not condition():
        threading.Event().wait(0.002)


def test_two_processes_use_the_same_gpus(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="H100", count=2)
    other = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(1)
pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300000)
print(pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
"""
    machine.occupy(1, 5000.0, 0.5)
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    result = subprocess.run([sys.executable, "-c", other], env=environment, capture_output=True, text=True, check=True)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    uuid, energy = result.stdout.split()
    assert uuid == nvml.nvmlDeviceGetUUID(handle)
    assert int(energy) == nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle) == 300000


def test_a_process_killed_during_a_change_blocks_no_other_and_leaves_the_gpu_unchanged(
    make_machine: MakeMachine,
) -> None:
    machine = make_machine(count=2)
    machine.occupy([0, 1], 100.0, 0.5)
    before = machine.describe().gpus
    with Child(HOLD_THE_LOCK, machine):
        pass
    assert machine.describe().gpus == before
    assert machine.occupy(0, 31.2, 0.1) == pytest.approx(0.1)


def test_the_work_of_a_killed_process_ends(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="wall", count=1)
    idle_watts = nvml_simulator.model_named("A100").idle_watts
    with Child(WORK_FOR_LONG, machine):
        wait_until(lambda: machine.describe().gpus[0].power_watts > idle_watts)
    wait_until(lambda: machine.describe().gpus[0].power_watts == idle_watts)


def test_a_process_killed_while_it_works_leaves_complete_steps_only(make_machine: MakeMachine) -> None:
    machine = make_machine(count=1)
    for piece in range(1, 4):
        with Child(WORK_IN_STEPS, machine):
            wait_until(lambda minimum=piece * 20: machine.describe().gpus[0].busy_seconds > minimum)  # type: ignore[misc]
    reached = machine.describe().gpus[0]
    replayed = make_machine(count=1)
    while replayed.clock_seconds(0) < reached.time_seconds:
        replayed.occupy(0, 31.2, 0.37)
    assert replayed.describe().gpus[0] == reached


def test_an_interrupted_process_stops_its_work_immediately(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="wall", count=1)
    script = WORK_FOR_LONG.replace("sys.stdin.read()", "machine.occupy(0, 1e6, 0.5)")
    with Child(script, machine) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT


def test_a_c_program_occupies_gpus_with_one_call(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="scaled", scale=100.0, count=2)
    gpus = (ctypes.c_uint * 2)(0, 1)
    assert nvml_simulator.load().wattloopSimulatorWork(machine._machine, gpus, 2, 312.0, 0.1) == 0
    assert all(gpu.busy_seconds >= 1.0 for gpu in machine.describe().gpus)


def test_a_stopped_process_keeps_its_work_and_killed_ones_release_their_slots(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="scaled", scale=50.0, count=1)
    idle_watts = nvml_simulator.model_named("A100").idle_watts
    with Child(WORK_FOR_LONG, machine) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        with Child(FILL_GPU, machine):
            pass
        wait_until(lambda: machine.describe().gpus[0].power_watts == idle_watts)
        machine.occupy(0, 31.2, 0.1)
        assert machine.describe().gpus[0].power_watts == idle_watts
        stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: machine.describe().gpus[0].power_watts > idle_watts)


def test_running_processes_are_listed_until_they_end(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(clock="wall", count=2)
    nvml = start_nvml()
    first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    with Child(WORK_FOR_LONG, machine) as process:
        assert [found.pid for found in nvml.nvmlDeviceGetComputeRunningProcesses(first)] == [process.pid]
        assert nvml.nvmlSystemGetProcessName(process.pid).startswith(sys.executable[:5])
        assert nvml.nvmlDeviceGetComputeRunningProcesses(second) == []
        used = nvml.nvmlDeviceGetMemoryInfo(first).used
        assert used > nvml.nvmlDeviceGetMemoryInfo(second).used
    assert nvml.nvmlDeviceGetComputeRunningProcesses(first) == []
    assert nvml.nvmlDeviceGetMemoryInfo(first).used < used


def test_a_process_that_acts_for_another_is_listed_as_that_one_until_it_ends(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(clock="virtual", count=1)
    nvml = start_nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert lists_all_processes()
    with subprocess.Popen(["sleep", "60"]) as other:
        machine.act_for(other.pid)
        machine.occupy(0, 1.0, 0.5)
        machine.act_for(0)
        assert [found.pid for found in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)] == [other.pid]
        machine.occupy(0, 1.0, 0.5)
        assert {found.pid for found in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)} == {other.pid, os.getpid()}
        other.kill()
    assert [found.pid for found in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)] == [os.getpid()]


def test_concurrent_work_shares_the_throughput(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="scaled", scale=100.0, count=1)
    threads = [threading.Thread(target=machine.occupy, args=(0, 312.0, 0.1)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.describe().gpus[0].busy_seconds == pytest.approx(3.0)


def test_work_above_the_limit_of_a_gpu_is_rejected_without_effect(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="wall", count=2)
    with Child(FILL_GPU, machine):
        with pytest.raises(OperationError, match="too much work"):
            machine.occupy([1, 0], 31.2, 0.1)
        assert machine.describe().gpus[1].busy_seconds == 0
        assert machine.occupy(1, 3.12, 0.1) > 0


def test_a_limit_set_while_work_runs_slows_it(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="wall", count=1)
    with Child(WORK_FOR_LONG, machine):
        wait_until(lambda: machine.describe().gpus[0].graphics_clock_megahertz == 1410)
        machine.set_power_limit_as_another_actor(0, 150)
        wait_until(lambda: 210 < machine.describe().gpus[0].graphics_clock_megahertz < 1410)
        assert machine.describe().gpus[0].power_watts <= 150


def test_a_replaced_state_file_is_reopened(
    tmp_path: Path, make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = nvml_simulator.create(tmp_path / "gpus", count=1, clock="virtual")
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(path))
    nvml_simulator.occupy(0, 312.0, 0.1)
    nvml_simulator.create(path, count=2, clock="virtual", replace=True)
    assert nvml_simulator.clock_seconds() == 0
    nvml_simulator.occupy(1, 312.0, 0.1)
