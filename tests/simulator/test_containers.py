"""The GPUs in containers, whose processes have their own pids, in PID namespaces like those of runc."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine
from support.agents.simulated_programs import FILL_GPU, HOLD_THE_LOCK, WORK_FOR_LONG, MakeMachine, StartNvml

INTO_A_CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() != 0:
    INTO_A_CONTAINER += ["--user", "--map-root-user"]
LIST_PROCESSES = """
import pynvml
from wattloop.gpus.nvml import lists_all_processes
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print([each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)], lists_all_processes())
print(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
"""


def work_for_long(gpu: int) -> str:
    """The program that works on one GPU."""
    return WORK_FOR_LONG.replace("args=(0,", f"args=({gpu},").replace("gpus[0]", f"gpus[{gpu}]")


def containers_are_supported() -> bool:
    try:
        return subprocess.run([*INTO_A_CONTAINER, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not containers_are_supported(), reason="this machine does not allow PID namespaces")


class Container(subprocess.Popen[str]):
    """The first process of a new PID namespace; killed at the end of the block."""

    def __init__(self, script: str, machine: Machine) -> None:
        super().__init__(
            [*INTO_A_CONTAINER, sys.executable, "-c", script, str(machine.path)],
            env={**os.environ, **nvml_simulator.environment(machine.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @functools.cached_property
    def first_line(self) -> str:
        """What it prints first; waits for it."""
        return self.stdout.readline().strip() if self.stdout else ""

    @property
    def host_pid(self) -> int:
        """Pid of its first process in the machine's namespace."""
        (pid,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        return int(pid)

    def __exit__(self, *_: object) -> None:
        # Its end kills the other processes of the namespace, and `unshare` ends after it.
        os.kill(self.host_pid, signal.SIGKILL)
        self.communicate()


def visible_in_a_container(machine: Machine) -> tuple[str, int]:
    """Return the processes on GPU 0 and its used memory as seen in another container."""
    command = [*INTO_A_CONTAINER, sys.executable, "-c", LIST_PROCESSES]
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    pids, used = answer.stdout.splitlines()
    return pids, int(used)


def test_the_machine_lists_processes_of_containers_and_containers_do_not_see_each_other(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(clock="wall", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def listed() -> list[int]:
        return [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]

    free = nvml.nvmlDeviceGetMemoryInfo(handle).used
    with Container(WORK_FOR_LONG, machine) as container:
        assert container.first_line == "working"
        assert listed() == [container.host_pid]
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        assert used > free
        assert visible_in_a_container(machine) == ("[] False", used)
        assert listed() == [container.host_pid], "a container that does not see the process must not remove it"
    assert listed() == []
    assert nvml.nvmlDeviceGetMemoryInfo(handle).used == free


def test_containers_that_start_at_once_are_not_taken_for_each_other(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    gpus = range(4)
    machine = make_machine(clock="wall", count=len(gpus))
    nvml = start_nvml()
    handles = [nvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in gpus]
    starts: list[str] = []
    # Each is the first process of its container. Two that begin in the same tick have the same pid and start.
    while len(set(starts)) == len(starts):
        with contextlib.ExitStack() as stack:
            containers = [stack.enter_context(Container(work_for_long(gpu), machine)) for gpu in gpus]
            assert {each.first_line for each in containers} == {"working"}
            listed = [[each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] for handle in handles]
            assert listed == [[each.host_pid] for each in containers]
            stats = [Path(f"/proc/{each.host_pid}/stat").read_text(encoding="ascii") for each in containers]
            starts = [stat.split()[21] for stat in stats]


def test_a_container_does_not_remove_the_work_of_a_stopped_process_elsewhere(make_machine: MakeMachine) -> None:
    machine = make_machine(clock="scaled", scale=50.0, count=1)
    idle_watts = nvml_simulator.model_named("A100").idle_watts
    with Container(WORK_FOR_LONG, machine) as stopped:
        assert stopped.first_line == "working"
        os.kill(stopped.host_pid, signal.SIGSTOP)
        while machine.describe().gpus[0].power_watts != idle_watts:
            pass
        with Container(FILL_GPU, machine) as other:
            # It uses one of sixteen slots, so the last two of seventeen units of work have no slot.
            assert other.first_line == "full"
            assert other.stdout.readline().strip() == "full"


def test_a_container_killed_while_it_changes_a_gpu_blocks_no_other(make_machine: MakeMachine) -> None:
    machine = make_machine(count=1)
    with Container(HOLD_THE_LOCK, machine) as container:
        assert container.first_line == "locked"
    before = machine.describe().gpus[0].energy_microjoules
    machine.occupy(0, 312.0, 0.5)
    assert machine.describe().gpus[0].energy_microjoules > before
    with Container(WORK_FOR_LONG.replace("1e6", "1.0"), machine) as container:
        assert container.first_line == "working"
