"""Stops the power controller before and after each access to disk and device, and restarts it.

Every point of every change is tested. `Stopped` passes every exception handler, so the state left is that of the steps
before it; tests/agent/attacks/test_killed_power_controller.py does the same with SIGKILL and a real process.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents.memory_devices import MemoryDevices
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager

FOUND = {"GPU-0": 300.0, "GPU-1": 250.0}


class Stopped(BaseException):
    """Simulates the end of the process."""


class Points:
    """Counts points, and stops at one of them."""

    def __init__(self, stop_at: int | None) -> None:
        self.passed = 0
        self.stop_at = stop_at

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **keywords: Any) -> Any:
            self._pass()
            result = call(*arguments, **keywords)
            self._pass()
            return result

        return watched

    def _pass(self) -> None:
        if self.passed == self.stop_at:
            raise Stopped
        self.passed += 1


def hold(lease_manager: LeaseManager, value: float, setting: GpuSetting = GpuSetting.POWER_LIMIT) -> None:
    lease_manager.hold(HoldRequest(("GPU-0", "GPU-1"), setting, value, "a"))


# Whether GPUs are held before the change, and the change.
CHANGES: dict[str, tuple[bool, Callable[[LeaseManager], object]]] = {
    "first hold": (False, lambda manager: hold(manager, 200.0)),
    "another limit": (True, lambda manager: hold(manager, 150.0)),
    "release": (True, lambda manager: manager.release("a")),
    "clocks locked": (False, lambda manager: hold(manager, 900.0, GpuSetting.GRAPHICS_CLOCK)),
}


def stopped_at(point: int | None, change: str, folder: Path, devices: MemoryDevices) -> int:
    """Run the change up to a point; returns the number of points."""
    is_held, act = CHANGES[change]
    lease_manager = LeaseManager(devices, folder, "boot", lambda: 0.0)
    lease_manager.recover()
    if is_held:
        hold(lease_manager, 200.0)
    points = Points(point)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "fsync"):
            patch.setattr(os, name, points.around(getattr(os, name)))
        patch.setattr(Path, "rename", points.around(Path.rename))
        for name in ("put", "current", "enforced"):
            patch.setattr(devices, name, points.around(getattr(devices, name)))
        try:
            act(lease_manager)
        except Stopped:
            assert point is not None
    lease_manager.close()
    return points.passed


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_crash_at_any_point_all_gpus_of_a_request_are_held_or_none_and_those_of_gone_owners_restored(
    change: str, tmp_path: Path
) -> None:
    points = stopped_at(None, change, tmp_path / "counted", MemoryDevices(dict(FOUND)))
    assert points >= 16
    for point in range(points):
        devices = MemoryDevices(dict(FOUND))
        folder = tmp_path / str(point)
        stopped_at(point, change, folder, devices)
        following = LeaseManager(devices, folder, "boot", lambda: 0.0)
        following.recover()
        held = [lease.held for lease in following.leases.values()]
        assert len(held) in {0, 2}, f"point {point} of {points}"
        assert len(set(held)) <= 1, f"point {point} of {points}"
        if change != "clocks locked":
            wanted = dict.fromkeys(FOUND, held[0]) if held else FOUND
            assert devices.limits == wanted, f"point {point} of {points}"
        following.release("a")
        assert (devices.limits, set(devices.clocks.values()) - {None}) == (FOUND, set()), f"point {point} of {points}"
        assert following.leases == {}
        following.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_reboot_discards_leases_instead_of_restoring(change: str, tmp_path: Path) -> None:
    stopped_at(None, change, tmp_path, MemoryDevices(dict(FOUND)))
    rebooted = MemoryDevices(dict.fromkeys(FOUND, 400.0))
    following = LeaseManager(rebooted, tmp_path, "another boot", lambda: 0.0)
    following.recover()
    assert following.leases == {}
    assert rebooted.limits == dict.fromkeys(FOUND, 400.0)
    assert rebooted.clocks == {}
    following.close()
