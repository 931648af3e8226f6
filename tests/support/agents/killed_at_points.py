"""A program: kills a power controller at each point of a change, on simulated GPUs.

``python killed_at_points.py FOLDER CHANGE`` prints a JSON list, one entry per point: the limits and locked clocks after
the kill and after the next power controller has restored. It forks, so it can't run in pytest's process.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvml_simulator
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.devices import NvmlDevices
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager

# Every system call of a change goes through one of these: disk access through the os module, device
# access through pynvml.
SYSTEM_CALLS = ("open", "write", "fsync", "rename", "mkdir")
NVML_CALLS = ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks")
State = list[list[object]]


def kill_at(point: int) -> None:
    """Count the points before and after each call, and die at this one."""
    import pynvml  # noqa: PLC0415 - patched as the process has it

    left = itertools.count()

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            passed()
            result = call(*arguments, **keywords)
            passed()
            return result

        return counted

    def passed() -> None:
        if next(left) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in SYSTEM_CALLS:
        setattr(os, name, around(getattr(os, name)))
    for name in NVML_CALLS:
        setattr(pynvml, name, around(getattr(pynvml, name)))


def change(lease_manager: LeaseManager, name: str, gpus: tuple[str, ...], begin: bool) -> None:
    """The preparation of a change, or the change itself."""
    if name == "clocks":
        if not begin:
            lease_manager.hold(HoldRequest(gpus, GpuSetting.GRAPHICS_CLOCK, 900.0, "a"))
    elif begin:
        if name != "hold":
            lease_manager.hold(HoldRequest(gpus, GpuSetting.POWER_LIMIT, 200.0, "a"))
    elif name == "release":
        lease_manager.release("a")
    else:
        lease_manager.hold(HoldRequest(gpus, GpuSetting.POWER_LIMIT, 150.0, "a"))


def in_child(work: Callable[[], None]) -> bool:
    """Run a function in a child process; returns whether the child was killed."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    assert status == 0, "the process failed by itself"
    return False


def main(folder: Path, name: str) -> None:
    state = nvml_simulator.create(folder / "gpus", model="A100", count=2, clock="virtual", permission="anyone")
    os.environ[nvml_simulator.STATE_VARIABLE] = str(state)
    outcomes = []
    with nvml_simulator.Machine(state) as machine:
        uuids = tuple(gpu.uuid for gpu in machine.describe().gpus)

        def seen() -> State:
            return [[gpu.power_limit_watts, gpu.locked_graphics_clocks_megahertz] for gpu in machine.describe().gpus]

        def lease_manager(leases: Path) -> LeaseManager:
            made = LeaseManager(NvmlDevices(), leases, "boot", lambda: 0.0)
            made.recover()
            return made

        for point in itertools.count():
            leases = folder / f"leases-{point}"

            def cut_off(leases: Path = leases, point: int = point) -> None:
                cut = lease_manager(leases)
                change(cut, name, uuids, begin=True)
                kill_at(point)
                change(cut, name, uuids, begin=False)

            killed = in_child(cut_off)
            left = seen()
            in_child(lambda leases=leases: lease_manager(leases).release())
            outcomes.append({"killed": killed, "left": left, "restored": seen()})
            if not killed:
                break
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
