"""The same GPUs seen from containers, whose processes have pids of their own, in PID namespaces as runc makes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import nvml_simulator
from nvml_simulator import Machine
from support.agents.simulated_programs import HOLD_THE_LOCK, WORK_FOR_LONG

INTO_A_CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() != 0:
    INTO_A_CONTAINER += ["--user", "--map-root-user"]
FILL = """
import os, sys, threading, nvml_simulator, wattloop.errors
machine = nvml_simulator.Machine(sys.argv[1])
def work():
    try:
        machine.occupy(0, 1e6, 0.5)
    except wattloop.errors.OperationError:
        # In one call: print writes a line's end by itself, and another thread's line may come between.
        os.write(1, b"no more fits\\n")
for _ in range(17):
    threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
"""
LOOK = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print([each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)])
print(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
"""


def containers_can_be_made() -> bool:
    try:
        return subprocess.run([*INTO_A_CONTAINER, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not containers_can_be_made(), reason="this machine lets nobody make PID namespaces")


class Container(subprocess.Popen[str]):
    """A process that is the first one of a PID namespace of its own; killed at the end, if not before."""

    def __init__(self, script: str, machine: Machine) -> None:
        super().__init__(
            [*INTO_A_CONTAINER, sys.executable, "-c", script, str(machine.path)],
            env={**os.environ, **nvml_simulator.environment(machine.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.stdout.readline().strip() if self.stdout else ""

    @property
    def pid_outside(self) -> int:
        """The pid by which the machine knows its first process."""
        (pid,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        return int(pid)

    def __exit__(self, *_: object) -> None:
        # With it all others of its namespace end, and `unshare` when it has buried it.
        os.kill(self.pid_outside, signal.SIGKILL)
        self.communicate()


def seen_in_a_container(machine: Machine) -> tuple[str, int]:
    """The processes on GPU 0 and its used memory as another container's process sees them."""
    command = [*INTO_A_CONTAINER, sys.executable, "-c", LOOK]
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    pids, used = answer.stdout.splitlines()
    return pids, int(used)


def test_the_machine_lists_containers_processes_by_its_own_pids_and_containers_do_not_see_each_other(
    make_machine: Callable[..., Machine], start_nvml: Callable[[], ModuleType]
) -> None:
    machine = make_machine(clock="wall", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def listed() -> list[int]:
        return [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]

    free = nvml.nvmlDeviceGetMemoryInfo(handle).used
    with Container(WORK_FOR_LONG, machine) as container:
        assert container.said == "working"
        assert listed() == [container.pid_outside]
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        assert used > free
        assert seen_in_a_container(machine) == ("[]", used)
        assert listed() == [container.pid_outside], "a container that does not see it must not forget it"
    assert listed() == []
    assert nvml.nvmlDeviceGetMemoryInfo(handle).used == free


def test_a_stopped_process_keeps_its_work_from_containers_that_do_not_see_it(
    make_machine: Callable[..., Machine],
) -> None:
    machine = make_machine(clock="scaled", scale=50.0, count=1)
    idle_watts = nvml_simulator.model_named("A100").idle_watts
    with Container(WORK_FOR_LONG, machine) as stopped:
        os.kill(stopped.pid_outside, signal.SIGSTOP)
        while machine.describe().gpus[0].power_watts != idle_watts:
            pass
        with Container(FILL, machine) as other:
            # It has one place of the sixteen, so the last two of seventeen pieces find none.
            assert other.said == "no more fits"
            assert other.stdout is not None
            assert other.stdout.readline().strip() == "no more fits"


def test_a_container_that_is_killed_while_it_changes_a_gpu_blocks_nobody(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine(count=1)
    with Container(HOLD_THE_LOCK, machine) as container:
        assert container.said == "locked"
    before = machine.describe().gpus[0].energy_microjoules
    machine.occupy(0, 312.0, 0.5)
    assert machine.describe().gpus[0].energy_microjoules > before
    with Container(WORK_FOR_LONG.replace("1e6", "1.0"), machine) as container:
        assert container.said == "working"
