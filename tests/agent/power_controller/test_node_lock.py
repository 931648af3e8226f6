"""One power controller per node: a second one changes nothing, names the first, and takes over later."""

import os
from pathlib import Path

import pytest

from support.agents.memory_devices import MemoryDevices
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager, NodeLock
from wattloop_agent.refusals import Reason, RequestError

GPUS = ("GPU-0", "GPU-1")


def power_controller(devices: MemoryDevices, folder: Path, name: str) -> LeaseManager:
    lease_manager = LeaseManager(devices, folder / name, "boot", lambda: 0.0, lock_folder=folder / "locks")
    lease_manager.recover()
    return lease_manager


def hold(lease_manager: LeaseManager, watts: float) -> None:
    lease_manager.hold(HoldRequest(GPUS, GpuSetting.POWER_LIMIT, watts, "owner"))


@pytest.fixture
def devices() -> MemoryDevices:
    return MemoryDevices(dict.fromkeys(GPUS, 400.0))


def test_the_second_power_controller_of_a_node_changes_nothing_and_names_the_first(
    devices: MemoryDevices, tmp_path: Path
) -> None:
    first, second = power_controller(devices, tmp_path, "first"), power_controller(devices, tmp_path, "second")
    hold(first, 200.0)
    with pytest.raises(RequestError) as refused:
        hold(second, 150.0)
    assert refused.value.reason is Reason.ANOTHER_AGENT
    assert f"process {os.getpid()} with state folder {tmp_path / 'first'}" in second.state
    for _ in range(3):
        second.tick()
    assert devices.limits == dict.fromkeys(GPUS, 200.0)
    assert not (tmp_path / "second").exists(), "it does not even touch its state folder"
    second.close()
    first.close()


def test_it_takes_over_at_its_next_tick_after_the_first_has_ended(devices: MemoryDevices, tmp_path: Path) -> None:
    first, second = power_controller(devices, tmp_path, "first"), power_controller(devices, tmp_path, "second")
    first.close()
    second.tick()
    assert second.state == "ready"
    hold(second, 150.0)
    assert devices.limits == dict.fromkeys(GPUS, 150.0)
    second.close()


def test_its_old_leases_are_not_restored_while_another_holds_the_node(devices: MemoryDevices, tmp_path: Path) -> None:
    killed = power_controller(devices, tmp_path, "killed")
    hold(killed, 200.0)
    killed.close()
    other = power_controller(devices, tmp_path, "other")
    hold(other, 150.0)
    again = power_controller(devices, tmp_path, "killed")
    with pytest.raises(RequestError, match="AnotherAgent"):
        hold(again, 300.0)
    assert again.release() == []
    assert devices.limits == dict.fromkeys(GPUS, 150.0)
    other.release()
    other.close()
    again.tick()
    assert [lease.held for lease in again.leases.values()] == [200.0, 200.0]
    assert again.release()
    assert devices.limits == dict.fromkeys(GPUS, 400.0)
    again.close()


def test_an_unusable_lock_folder_is_reported_and_nothing_is_changed(devices: MemoryDevices, tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("in the way")
    lease_manager = power_controller(devices, tmp_path, "state")
    with pytest.raises(RequestError) as refused:
        hold(lease_manager, 200.0)
    assert refused.value.reason is Reason.STATE_NOT_DURABLE
    assert "--lock-directory" in refused.value.message
    assert devices.limits == dict.fromkeys(GPUS, 400.0)
    (tmp_path / "locks").unlink()
    hold(lease_manager, 200.0)
    assert devices.limits == dict.fromkeys(GPUS, 200.0)
    lease_manager.close()


def test_a_symbolic_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "power-controller.lock").symlink_to(tmp_path / "somewhere")
    with pytest.raises(RequestError, match="StateNotDurable"):
        NodeLock(tmp_path, "me")
    assert not (tmp_path / "somewhere").exists()


def test_only_root_can_open_the_lock(tmp_path: Path) -> None:
    lock = NodeLock(tmp_path / "locks", "me")
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "locks" / "power-controller.lock").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "locks" / "power-controller.lock").read_text() == "me"
    lock.close()
