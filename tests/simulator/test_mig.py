"""Partitioned GPUs, and the device ids that the device plugin offers to containers."""

from collections.abc import Callable
from types import ModuleType

import pytest

from nvml_simulator import device_plugin_ids
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import UsageError


def parts_of(nvml: ModuleType, handle: object) -> list[object]:
    """Return the handles of a GPU's MIG devices."""
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
def test_mig_devices_have_their_own_names_memory_and_ids_and_a_link_to_their_gpu(
    model: str, count: int, profile: str, memory_eighths: int, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model=model, count=2)
    machine.partition(1, count)
    nvml = start_nvml()
    gpu_handle = nvml.nvmlDeviceGetHandleByIndex(1)
    parts = parts_of(nvml, gpu_handle)
    assert len(parts) == count
    assert nvml.nvmlDeviceGetMigMode(gpu_handle) == [1, 1]
    described = machine.describe().gpus[1].mig_devices
    assert [nvml.nvmlDeviceGetUUID(part) for part in parts] == [part.uuid for part in described]
    assert len({part.uuid for part in described}) == count
    for part, device in zip(parts, described, strict=True):
        assert nvml.nvmlDeviceGetName(part) == f"{nvml.nvmlDeviceGetName(gpu_handle)} MIG {profile}"
        assert nvml.nvmlDeviceGetMemoryInfo(part).total == (
            nvml.nvmlDeviceGetMemoryInfo(gpu_handle).total * memory_eighths // 8
        )
        assert nvml.nvmlDeviceIsMigDeviceHandle(part).value == 1
        assert nvml.nvmlDeviceGetGpuInstanceId(part) == device.gpu_instance_id
        assert nvml.nvmlDeviceGetComputeInstanceId(part) == 0
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
        assert nvml.nvmlDeviceGetUUID(parent) == machine.describe().gpus[1].uuid
        found = nvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
        assert nvml.nvmlDeviceGetUUID(found) == device.uuid


def test_a_gpu_without_mig_devices_reports_none(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    make_machine(model="A100", count=2).partition(0, 7)
    nvml = start_nvml()
    gpu_handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetMigMode(gpu_handle) == [0, 0]
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu_handle) == 0
    assert nvml.nvmlDeviceIsMigDeviceHandle(gpu_handle).value == 0
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetGpuInstanceId(gpu_handle)
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
def test_a_mig_device_has_no_power_energy_and_clocks(
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


def test_a_partitioned_gpu_has_power_and_energy_but_no_utilization(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=1)
    machine.partition(0, 7)
    nvml = start_nvml()
    gpu_handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPowerManagementLimit(gpu_handle, 250_000)
    assert nvml.nvmlDeviceGetPowerManagementLimit(gpu_handle) == 250_000
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu_handle) == machine.describe().gpus[0].counter_millijoules
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(gpu_handle)


def test_the_handle_of_a_removed_mig_device_is_rejected(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="H100", count=1)
    machine.partition(0, 7)
    nvml = start_nvml()
    last = nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.nvmlDeviceGetHandleByIndex(0), 6)
    machine.partition(0, 2)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetUUID(last)


def test_uuids_depend_on_the_partition(make_machine: MakeMachine) -> None:
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
    ("model", "gpu", "count", "message"),
    [
        ("A40", 0, 2, "'A40', which has no MIG"),
        ("V100", 0, 7, "'V100', which has no MIG"),
        ("A100", 0, 8, "found 8 MIG devices, expected 0"),
        ("A100", 0, -1, "found -1 MIG devices"),
        ("A100", 5, 2, "found GPU 5"),
    ],
)
def test_an_invalid_partition_is_rejected(
    model: str, gpu: int, count: int, message: str, make_machine: MakeMachine
) -> None:
    with pytest.raises(UsageError, match=message):
        make_machine(model=model, count=1).partition(gpu, count)


def test_device_ids_are_those_of_nvidias_plugin(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    machine.partition(1, 2)
    whole_gpu, partitioned = machine.describe().gpus
    parts = [part.uuid for part in partitioned.mig_devices]
    assert device_plugin_ids(machine.describe()) == (whole_gpu.uuid, *parts)
    assert device_plugin_ids(machine.describe(), replicas=2) == tuple(
        f"{device}::{replica}" for device in (whole_gpu.uuid, *parts) for replica in (0, 1)
    )
