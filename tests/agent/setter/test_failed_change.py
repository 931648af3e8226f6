"""A change that fails leaves everything of the lease before it as it was."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from memory_devices import MemoryDevices

from wattloop_agent.refusal import Refused
from wattloop_agent.setter.decisions import HoldRequest
from wattloop_agent.setter.holder import Holder
from wattloop_agent.setter.lease import Setting

GPUS = ("GPU-0", "GPU-1")


@pytest.mark.parametrize("setting", [Setting.POWER_LIMIT, Setting.GRAPHICS_CLOCK])
def test_a_change_that_fails_leaves_the_lease_before_it_its_time(setting: Setting, tmp_path: Path) -> None:
    now = 0.0
    devices = MemoryDevices(dict.fromkeys(GPUS, 400.0))
    holder = Holder(devices, tmp_path, "boot", lambda: now)
    holder.recover()
    holder.hold(HoldRequest(GPUS, setting, 300.0, "a", expires_seconds=100.0))
    devices.failing = {"GPU-1"}
    with pytest.raises(Refused):
        holder.hold(HoldRequest(GPUS, setting, 390.0, "a", expires_seconds=5.0))
    devices.failing = set()
    now = 10.0
    holder.tick()
    assert [(lease.held, lease.expires_seconds) for lease in holder.leases.values()] == [(300.0, 100.0)] * 2
    now = 100.0
    holder.tick()
    assert holder.leases == {}
    holder.close()


def test_a_disk_that_takes_no_leases_is_told_once_and_shown_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    devices = MemoryDevices(dict.fromkeys(GPUS, 400.0))
    holder = Holder(devices, tmp_path, "boot", lambda: 0.0)
    holder.recover()
    holder.hold(HoldRequest(GPUS, Setting.POWER_LIMIT, 300.0, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Refused, match="No space left"):
            holder.hold(HoldRequest(GPUS, Setting.POWER_LIMIT, 200.0, "a"))
        holder.release("a")
        for _ in range(3):
            holder.tick()
        assert "No space left" in holder.warning
        assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
            "leases not written"
        ]
    holder.tick()
    assert holder.warning == ""
    holder.close()
    following = Holder(devices, tmp_path, "boot", lambda: 0.0)
    following.recover()
    assert following.leases == {}
    following.close()
