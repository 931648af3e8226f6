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
POWER = GpuSetting.POWER_LIMIT


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


def hold(lease_manager: LeaseManager, watts: float, owner: str = "a") -> None:
    lease_manager.hold(HoldRequest(("GPU-0", "GPU-1"), POWER, watts, owner))


def rehold(lease_manager: LeaseManager) -> None:
    hold(lease_manager, 150.0)


def release(lease_manager: LeaseManager) -> None:
    lease_manager.release("a")


def begin_with_nothing(_: LeaseManager) -> None:
    """No lease exists before the change."""


def begin_held(lease_manager: LeaseManager) -> None:
    hold(lease_manager, 200.0)


CHANGES = {
    "first hold": (begin_with_nothing, lambda lease_manager: hold(lease_manager, 200.0)),
    "another limit": (begin_held, rehold),
    "release": (begin_held, release),
    "clocks locked": (
        begin_with_nothing,
        lambda lease_manager: lease_manager.hold(
            HoldRequest(("GPU-0", "GPU-1"), GpuSetting.GRAPHICS_CLOCK, 900.0, "a")
        ),
    ),
}


def stopped_at(point: int | None, change: str, folder: Path, devices: MemoryDevices) -> int:
    """Run the change up to a point; returns the number of points."""
    begin, act = CHANGES[change]
    lease_manager = LeaseManager(devices, folder, "boot", lambda: 0.0)
    lease_manager.recover()
    begin(lease_manager)
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


def count_points(change: str, folder: Path) -> int:
    return stopped_at(None, change, folder, MemoryDevices(dict(FOUND)))


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_crash_at_any_point_the_next_one_restores_gpus_of_gone_owners(change: str, tmp_path: Path) -> None:
    points = count_points(change, tmp_path / "counted")
    assert points >= 16
    for point in range(points):
        devices = MemoryDevices(dict(FOUND))
        folder = tmp_path / str(point)
        stopped_at(point, change, folder, devices)
        following = LeaseManager(devices, folder, "boot", lambda: 0.0)
        following.recover()
        following.release("a")
        assert (devices.limits, set(devices.clocks.values()) - {None}) == (FOUND, set()), f"point {point} of {points}"
        assert following.leases == {}
        following.close()


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_crash_at_any_point_the_next_one_holds_all_gpus_of_a_request_or_none(
    change: str, tmp_path: Path
) -> None:
    points = count_points(change, tmp_path / "counted")
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
