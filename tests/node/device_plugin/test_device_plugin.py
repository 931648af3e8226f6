"""The plugin as a process, with a kubelet's side over real gRPC and simulated GPUs whose health is their own."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

import nvml_simulator
from nvml_simulator.compilation import SONAME
from support.device_plugin import device_plugin_command
from support.device_plugin.fake_kubelet import FakeKubelet, Registered, kubelet_in

LOST = 15


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        (Path(name) / "kubelet").mkdir()
        yield Path(name)


@pytest.fixture
def gpus(folder: Path) -> Iterator[nvml_simulator.Machine]:
    state = nvml_simulator.create(folder / "gpus", model="A100", count=2, clock="virtual")
    with nvml_simulator.Machine(state) as machine:
        yield machine


@contextmanager
def running(folder: Path, *, replicas: int = 1) -> Iterator[None]:
    command = device_plugin_command(folder / "gpus", replicas=replicas, kubelet_folder=folder / "kubelet")
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()
    assert process.returncode == 0, (folder / "log").read_text()


@pytest.fixture
def kubelet(folder: Path) -> Iterator[FakeKubelet]:
    with kubelet_in(folder / "kubelet") as kubelet:
        yield kubelet


@pytest.fixture
def plugin(folder: Path, gpus: nvml_simulator.Machine, kubelet: FakeKubelet) -> Iterator[Registered]:
    with running(folder), kubelet.registered() as plugin:
        yield plugin


def uuids(gpus: nvml_simulator.Machine) -> list[str]:
    return [gpu.uuid for gpu in gpus.describe().gpus]


def test_the_plugin_registers_as_nvidias_does_and_offers_every_gpu(
    plugin: Registered, gpus: nvml_simulator.Machine
) -> None:
    assert (plugin.request.version, plugin.request.resource_name) == ("v1beta1", "nvidia.com/gpu")
    options = plugin.options()
    assert not options.pre_start_required
    assert not options.get_preferred_allocation_available
    assert plugin.next_devices() == dict.fromkeys(uuids(gpus), "Healthy")


def test_a_lost_gpu_is_unhealthy_until_it_returns(plugin: Registered, gpus: nvml_simulator.Machine) -> None:
    first, second = uuids(gpus)
    assert plugin.next_devices() == {first: "Healthy", second: "Healthy"}
    ticket = gpus.inject_fault("*", code=LOST, gpu=second)
    assert plugin.next_devices() == {first: "Healthy", second: "Unhealthy"}
    gpus.clear_fault(ticket)
    assert plugin.next_devices() == {first: "Healthy", second: "Healthy"}


def test_without_a_driver_every_gpu_is_unhealthy(plugin: Registered, gpus: nvml_simulator.Machine) -> None:
    assert set(plugin.next_devices().values()) == {"Healthy"}
    gpus.stop_driver()
    assert plugin.next_devices() == dict.fromkeys(uuids(gpus), "Unhealthy")
    gpus.start_driver()
    assert plugin.next_devices() == dict.fromkeys(uuids(gpus), "Healthy")


def test_mig_devices_replace_their_gpu_and_share_its_health(plugin: Registered, gpus: nvml_simulator.Machine) -> None:
    first, second = uuids(gpus)
    plugin.next_devices()
    gpus.partition(first, 2)
    parts = [part.uuid for part in gpus.describe().gpus[0].mig_devices]
    assert plugin.next_devices() == {parts[0]: "Healthy", parts[1]: "Healthy", second: "Healthy"}
    gpus.inject_fault("*", code=LOST, gpu=first)
    assert plugin.next_devices() == {parts[0]: "Unhealthy", parts[1]: "Unhealthy", second: "Healthy"}
    (given,) = plugin.allocate([parts[1]]).container_responses
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == parts[1]


def test_a_container_with_a_gpu_gets_the_library_and_the_state_and_uses_them(
    plugin: Registered, gpus: nvml_simulator.Machine, folder: Path
) -> None:
    first, second = uuids(gpus)
    plugin.next_devices()
    one, both = plugin.allocate([second], [first, second]).container_responses
    assert one.envs["NVIDIA_VISIBLE_DEVICES"] == second
    assert both.envs["NVIDIA_VISIBLE_DEVICES"] == f"{first},{second}"
    folders = {mount.container_path: (mount.host_path, mount.read_only) for mount in one.mounts}
    library, state = (one.envs[name] for name in ("WATTLOOP_SIMULATED_GPUS_LIBRARY", nvml_simulator.STATE_VARIABLE))
    assert Path(library).name == SONAME
    library_folder, library_read_only = folders[one.envs["LD_LIBRARY_PATH"]]
    state_folder, state_read_only = folders[str(Path(state).parent)]
    assert library_read_only
    assert (Path(library_folder) / SONAME).is_file()
    assert not state_read_only
    assert Path(state_folder) / Path(state).name == folder / "gpus"


def test_an_unknown_device_is_not_allocated(plugin: Registered) -> None:
    plugin.next_devices()
    with pytest.raises(grpc.RpcError, match="there is no device GPU-other"):
        plugin.allocate(["GPU-other"])


def test_the_plugin_registers_again_with_a_restarted_kubelet(folder: Path, gpus: nvml_simulator.Machine) -> None:
    with running(folder):
        for _ in range(2):
            with kubelet_in(folder / "kubelet") as kubelet, kubelet.registered() as plugin:
                assert set(plugin.next_devices()) == set(uuids(gpus))


def test_a_time_sliced_gpu_is_offered_once_for_each_share(
    folder: Path, gpus: nvml_simulator.Machine, kubelet: FakeKubelet
) -> None:
    with running(folder, replicas=2), kubelet.registered() as plugin:
        assert set(plugin.next_devices()) == {f"{uuid}::{share}" for uuid in uuids(gpus) for share in (0, 1)}
        first = uuids(gpus)[0]
        (given,) = plugin.allocate([f"{first}::1"]).container_responses
        assert given.envs["NVIDIA_VISIBLE_DEVICES"] == first
