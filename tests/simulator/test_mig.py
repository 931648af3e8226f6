"""GPUs that are cut into MIG devices, and the ids under which devices are offered to containers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from nvml_simulator import Machine, device_plugin_ids
from wattloop.errors import UsageError

MakeMachine = Callable[..., Machine]
StartNvml = Callable[[], ModuleType]


def parts_of(nvml: ModuleType, handle: object) -> list[object]:
    """The handles of a GPU's MIG devices, found as programs find them."""
    parts = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except nvml.NVMLError_NotFound:
            continue
    return parts


@pytest.mark.parametrize(
    ("model", "count", "profile", "memory_eighths"),
    [
        ("A100", 1, "7g.80gb", 8),
        ("A100", 2, "3g.40gb", 4),
        ("H100", 3, "2g.20gb", 2),
        ("H200", 7, "1g.18gb", 1),
        ("H200", 2, "3g.71gb", 4),
    ],
)
def test_mig_devices_have_names_memory_and_ids_of_their_own_and_the_way_to_their_gpu(
    model: str, count: int, profile: str, memory_eighths: int, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model=model, count=2)
    machine.partition(1, count)
    nvml = start_nvml()
    whole = nvml.nvmlDeviceGetHandleByIndex(1)
    parts = parts_of(nvml, whole)
    assert len(parts) == count
    assert nvml.nvmlDeviceGetMigMode(whole) == [1, 1]
    described = machine.describe().gpus[1].mig_devices
    assert [nvml.nvmlDeviceGetUUID(part) for part in parts] == [part.uuid for part in described]
    assert len({part.uuid for part in described}) == count
    for part, truth in zip(parts, described, strict=True):
        assert nvml.nvmlDeviceGetName(part) == f"{nvml.nvmlDeviceGetName(whole)} MIG {profile}"
        assert nvml.nvmlDeviceGetMemoryInfo(part).total == (
            nvml.nvmlDeviceGetMemoryInfo(whole).total * memory_eighths // 8
        )
        assert nvml.nvmlDeviceIsMigDeviceHandle(part).value == 1
        assert nvml.nvmlDeviceGetGpuInstanceId(part) == truth.gpu_instance_id
        assert nvml.nvmlDeviceGetComputeInstanceId(part) == 0
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
        assert nvml.nvmlDeviceGetUUID(parent) == machine.describe().gpus[1].uuid
        found = nvml.nvmlDeviceGetHandleByUUID(truth.uuid.encode())
        assert nvml.nvmlDeviceGetUUID(found) == truth.uuid


def test_a_gpu_without_mig_devices_says_so(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="A100", count=2)
    machine.partition(0, 7)
    nvml = start_nvml()
    whole = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetMigMode(whole) == [0, 0]
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(whole) == 0
    assert nvml.nvmlDeviceIsMigDeviceHandle(whole).value == 0
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetGpuInstanceId(whole)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(b"MIG-00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize(
    "call",
    [
        lambda nvml, part: nvml.nvmlDeviceGetPowerUsage(part),
        lambda nvml, part: nvml.nvmlDeviceGetTotalEnergyConsumption(part),
        lambda nvml, part: nvml.nvmlDeviceGetPowerManagementLimit(part),
        lambda nvml, part: nvml.nvmlDeviceSetPowerManagementLimit(part, 200_000),
        lambda nvml, part: nvml.nvmlDeviceSetGpuLockedClocks(part, 990, 990),
        lambda nvml, part: nvml.nvmlDeviceGetUtilizationRates(part),
    ],
)
def test_power_energy_and_clocks_are_not_a_mig_devices(
    call: Callable[[ModuleType, object], object], make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=1)
    machine.partition(0, 3)
    before = machine.describe().gpus
    nvml = start_nvml()
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.nvmlDeviceGetHandleByIndex(0), 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        call(nvml, part)
    assert machine.describe().gpus == before


def test_a_gpu_that_is_cut_still_has_its_own_power_and_energy_but_no_utilisation(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=1)
    machine.partition(0, 7)
    nvml = start_nvml()
    whole = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPowerManagementLimit(whole, 250_000)
    assert nvml.nvmlDeviceGetPowerManagementLimit(whole) == 250_000
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(whole) == machine.describe().gpus[0].counter_millijoules
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(whole)


def test_the_handle_of_a_mig_device_that_is_gone_is_refused(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="H100", count=1)
    machine.partition(0, 7)
    nvml = start_nvml()
    last = nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.nvmlDeviceGetHandleByIndex(0), 6)
    machine.partition(0, 2)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetUUID(last)


def test_the_same_cut_gives_the_same_uuids_and_another_gives_others(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)

    def uuids(count: int) -> set[str]:
        for gpu in (0, 1):
            machine.partition(gpu, count)
        return {part.uuid for gpu in machine.describe().gpus for part in gpu.mig_devices}

    sevenths = uuids(7)
    assert len(sevenths) == 14
    assert sevenths.isdisjoint(uuids(3))
    assert uuids(0) == set()
    assert uuids(7) == sevenths


@pytest.mark.parametrize(
    ("model", "gpu", "count", "complaint"),
    [
        ("A40", 0, 2, "'A40', which has no MIG"),
        ("V100", 0, 7, "'V100', which has no MIG"),
        ("A100", 0, 8, "found 8 MIG devices, expected 0"),
        ("A100", 0, -1, "found -1 MIG devices"),
        ("A100", 5, 2, "found GPU 5"),
    ],
)
def test_a_cut_that_can_not_be_is_refused(
    model: str, gpu: int, count: int, complaint: str, make_machine: MakeMachine
) -> None:
    with pytest.raises(UsageError, match=complaint):
        make_machine(model=model, count=1).partition(gpu, count)


def test_devices_are_offered_as_nvidias_plugin_offers_them(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    machine.partition(1, 2)
    whole, cut = machine.describe().gpus
    parts = [part.uuid for part in cut.mig_devices]
    assert device_plugin_ids(machine.describe()) == (whole.uuid, *parts)
    assert device_plugin_ids(machine.describe(), replicas=2) == tuple(
        f"{device}::{replica}" for device in (whole.uuid, *parts) for replica in (0, 1)
    )
