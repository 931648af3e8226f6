"""Which framework is waited for, and when not. The modules stand in for GPUs, which the tests do not have."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from wattloop.energy_monitor.energy_monitor import synchronization
from wattloop.errors import UsageError


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(UsageError, match="sync: found 'tensorflow', expected None or one of 'torch', 'jax', 'cupy'"):
        synchronization("tensorflow")
    assert synchronization(None) is None


@pytest.mark.parametrize("framework", ["torch", "jax", "cupy"])
def test_a_framework_that_is_not_imported_is_not_imported(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, framework, raising=False)
    synchronize = synchronization(framework)
    synchronize([0])
    assert framework not in sys.modules


@pytest.mark.parametrize(("initialized", "waited"), [(True, [0, 2]), (False, [])])
def test_torch_is_waited_for_once_it_uses_gpus(
    initialized: bool, waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    cuda = SimpleNamespace(is_initialized=lambda: initialized, synchronize=calls.append)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    synchronize = synchronization("torch")
    synchronize([0, 2])
    assert calls == waited


class Array:
    def __init__(self, device: object) -> None:
        self.device = device

    def __add__(self, other: int) -> Array:
        return self


@pytest.mark.parametrize(("platforms", "waited"), [(["gpu", "gpu", "gpu"], [0, 2]), (["cpu"], [0])])
def test_jax_is_waited_for_by_new_work_on_each_device(
    platforms: list[str], waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [SimpleNamespace(platform=platform, number=number) for number, platform in enumerate(platforms)]
    ready: list[int] = []
    jax = SimpleNamespace(
        local_devices=lambda: devices,
        device_put=lambda _, device: Array(device),
        block_until_ready=lambda arrays: ready.extend(array.device.number for array in arrays),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    synchronize = synchronization("jax")
    synchronize([0, 2])
    assert ready == waited


@pytest.mark.parametrize(("available", "waited"), [(True, [0, 2]), (False, [])])
def test_cupy_is_waited_for_on_each_gpu(available: bool, waited: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    cuda = SimpleNamespace(Device=lambda gpu: SimpleNamespace(synchronize=lambda: calls.append(gpu)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(is_available=lambda: available, cuda=cuda))
    synchronize = synchronization("cupy")
    synchronize([0, 2])
    assert calls == waited
