"""A failed change leaves the previous lease unchanged."""

import logging
import os
from pathlib import Path

import pytest

from support.agents.memory_devices import MemoryDevices
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.refusals import RequestError

GPUS = ("GPU-0", "GPU-1")


@pytest.mark.parametrize("setting", [GpuSetting.POWER_LIMIT, GpuSetting.GRAPHICS_CLOCK])
def test_a_failed_change_keeps_the_expiry_of_the_previous_lease(setting: GpuSetting, tmp_path: Path) -> None:
    now = 0.0
    devices = MemoryDevices(dict.fromkeys(GPUS, 400.0))
    lease_manager = LeaseManager(devices, tmp_path, "boot", lambda: now)
    lease_manager.recover()
    lease_manager.hold(HoldRequest(GPUS, setting, 300.0, "a", expires_seconds=100.0))
    devices.failing = {"GPU-1"}
    with pytest.raises(RequestError):
        lease_manager.hold(HoldRequest(GPUS, setting, 390.0, "a", expires_seconds=5.0))
    devices.failing = set()
    now = 10.0
    lease_manager.tick()
    assert [(lease.held, lease.expires_seconds) for lease in lease_manager.leases.values()] == [(300.0, 100.0)] * 2
    now = 100.0
    lease_manager.tick()
    assert lease_manager.leases == {}
    lease_manager.close()


def test_a_failing_disk_is_logged_once_and_reported_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    devices = MemoryDevices(dict.fromkeys(GPUS, 400.0))
    lease_manager = LeaseManager(devices, tmp_path, "boot", lambda: 0.0)
    lease_manager.recover()
    lease_manager.hold(HoldRequest(GPUS, GpuSetting.POWER_LIMIT, 300.0, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RequestError, match="No space left"):
            lease_manager.hold(HoldRequest(GPUS, GpuSetting.POWER_LIMIT, 200.0, "a"))
        lease_manager.release("a")
        for _ in range(3):
            lease_manager.tick()
        assert "No space left" in lease_manager.warning
        assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
            "leases not written"
        ]
    lease_manager.tick()
    assert lease_manager.warning == ""
    lease_manager.close()
    following = LeaseManager(devices, tmp_path, "boot", lambda: 0.0)
    following.recover()
    assert following.leases == {}
    following.close()
