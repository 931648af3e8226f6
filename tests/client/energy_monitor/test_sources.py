"""The sources of readings, and what they say when they are not available."""

import socket
from pathlib import Path

import pytest

from support.sampled_machine import SampledMachine
from wattloop.energy_monitor.sources import FirstAvailable, NvmlSource
from wattloop.errors import OperationError


def test_without_agent_and_library_the_error_names_both(tmp_path: Path) -> None:
    source = FirstAvailable({"WATTLOOP_AGENT_SOCKET": "/nowhere.sock", "WATTLOOP_NVML_LIBRARY": "/nowhere.so"})
    with pytest.raises(OperationError) as caught:
        source.open()
    message = str(caught.value)
    assert "/nowhere.sock: no agent answers (No such file or directory)" in message
    assert "/nowhere.so, named by WATTLOOP_NVML_LIBRARY, can't be loaded" in message
    with pytest.raises(OperationError, match="WATTLOOP_AGENT_SOCKET names no socket"):
        FirstAvailable({"WATTLOOP_NVML_LIBRARY": "/nowhere.so"}).open()


def test_nvml_is_read_where_no_agent_answers(sampled: SampledMachine) -> None:
    with socket.socket(socket.AF_UNIX):
        source = FirstAvailable({"WATTLOOP_AGENT_SOCKET": "/nowhere.sock", "CUDA_VISIBLE_DEVICES": "1"})
        assert list(source.open()) == sampled.uuids[1:]
        (reading,) = source.read(sampled.uuids[1:]).gpus
        source.close()
    assert reading.uuid == sampled.uuids[1]
    assert reading.energy_millijoules == sampled.machine.describe().gpus[1].counter_millijoules


def test_a_gpu_that_fails_leaves_the_others_readable_and_is_read_again_later(sampled: SampledMachine) -> None:
    source = NvmlSource({}, interval_seconds=0.0)
    uuids = source.open()
    ticket = sampled.machine.inject_fault("nvmlDeviceGetTotalEnergyConsumption", code=999, gpu=0)
    assert [each.uuid for each in source.read(uuids).gpus] == sampled.uuids[1:]
    sampled.machine.clear_fault(ticket)
    assert [each.uuid for each in source.read(uuids).gpus] == sampled.uuids[1:], "not yet again"
    source._failed_seconds.clear()
    assert [each.uuid for each in source.read(uuids).gpus] == sampled.uuids
    source.close()


def test_a_source_none_of_whose_gpus_answers_fails_so_that_it_is_opened_again(sampled: SampledMachine) -> None:
    source = NvmlSource({}, interval_seconds=0.0)
    uuids = source.open()
    sampled.machine.restart_driver()
    with pytest.raises(OperationError, match="none of the GPUs answers"):
        source.read(uuids)
    source.close()
    assert list(source.open()) == sampled.uuids
    assert len(source.read(uuids).gpus) == 2
    source.close()


def test_a_gpu_without_a_counter_has_power(sampled: SampledMachine) -> None:
    sampled.machine.inject_fault("nvmlDeviceGetTotalEnergyConsumption", code=3)
    source = NvmlSource({}, interval_seconds=0.0)
    readings = source.read(source.open()).gpus
    source.close()
    assert [each.energy_millijoules for each in readings] == [None, None]
    assert all(each.instant_watts is not None and each.instant_watts > 0 for each in readings)


def test_processors_are_read_where_that_is_permitted(sampled: SampledMachine, tmp_path: Path) -> None:
    zone = tmp_path / "intel-rapl:0"
    (zone / "intel-rapl:0:0").mkdir(parents=True)
    for folder, name in ((zone, "package-0"), (zone / "intel-rapl:0:0", "dram")):
        for file, value in (("name", name), ("energy_uj", "1000000"), ("max_energy_range_uj", "262143328850")):
            (folder / file).write_text(f"{value}\n")
    source = NvmlSource({}, interval_seconds=0.0, powercap=tmp_path)
    uuids = source.open()
    (zone / "energy_uj").write_text("3000000\n")
    readings = source.read(uuids)
    source.close()
    assert dict(readings.processor_joules) == {"package-0": 2.0, "package-0/dram": 0.0}
