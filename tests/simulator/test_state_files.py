"""State files: creation, invalid arguments, damage, and the identity of the GPUs."""

import itertools
import os
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine, models
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import OperationError, UsageError


@pytest.mark.parametrize("model", models(), ids=lambda model: model.key)
def test_nvml_reports_each_model(model: nvml_simulator.Model, make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    make_machine(model=model.key, count=2)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetName(handle) == model.name
    minimum, maximum = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    assert (minimum / 1e3, maximum / 1e3) == model.power_limit_range_watts
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3 == model.default_power_limit_watts
    memory_clocks = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    assert tuple(memory_clocks) == model.memory_clocks_megahertz
    for memory_clock in memory_clocks:
        clocks = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_clock)
        assert tuple(clocks) == model.graphics_clocks_megahertz
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == model.memory_bytes


# Of the older models, the highest clock and the length are those of the real GPUs.
@pytest.mark.parametrize(
    ("model", "maximum", "minimum", "count", "steps"),
    [
        ("A40", 1740, 210, 103, {7, 8, 15}), ("V100", 1530, 135, 187, {7, 8, 15}), ("A100", 1410, 210, 81, {7, 8, 15}),
        ("H200", 1980, 345, 110, {7, 8, 15}), ("P100", 1480, 555, 75, {12, 13}), ("K80", 875, 563, 25, {12, 13})
    ]
)  # fmt: skip
def test_clock_tables_are_those_of_the_real_gpus(
    model: str, maximum: int, minimum: int, count: int, steps: set[int]
) -> None:
    table = nvml_simulator.model_named(model).graphics_clocks_megahertz
    assert (table[0], table[-1], len(table)) == (maximum, minimum, count)
    assert {above - below for above, below in itertools.pairwise(table)} <= steps


def test_uuids_depend_only_on_seed_and_index(make_machine: MakeMachine) -> None:
    uuids = [[gpu.uuid for gpu in make_machine(**options).describe().gpus] for options in (
        {"seed": 7, "count": 4, "model": "A40"}, {"seed": 7, "count": 4, "model": "H100"}, {"seed": 8, "count": 4}
    )]  # fmt: skip
    assert uuids[0] == uuids[1]
    assert len({*uuids[0], *uuids[2]}) == 8
    assert uuids[0][0] == "GPU-1232c39e-102e-cf73-b8b6-1bc34c8e069f"


def test_a_gpu_is_found_by_uuid_serial_and_bus_id_in_every_form(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    make_machine(count=64)
    nvml = start_nvml()
    for index in (0, 3, 63):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        names = (
            nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(handle).encode()),
            nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(handle)),
            nvml.nvmlDeviceGetHandleByPciBusId(pci.busId.encode()),
            nvml.nvmlDeviceGetHandleByPciBusId(pci.busId.lower().encode()),
            nvml.nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy.encode()),
        )
        assert [nvml.nvmlDeviceGetIndex(found) for found in names] == [index] * len(names)
        assert pci.busId.startswith("00000000:")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "B300"}, "found GPU model 'B300', expected one of A40, V100, A100, H100, H200, P100, K80"),
        ({"count": -1}, "found -1 simulated GPUs, expected 0 to 64"),
        ({"count": 65}, "expected 0 to 64"),
        ({"clock": "sundial"}, "expected one of wall, scaled, virtual"),
        ({"clock": "scaled", "scale": 0.0}, "expected more than 0"),
        ({"clock": "scaled", "scale": float("nan")}, "expected more than 0"),
        ({"clock": "wall", "scale": 2.0}, "only with clock 'scaled'"),
        ({"permission": "me"}, "expected one of root, anyone, nobody"),
        ({"seed": -1}, "expected 0 to"),
    ],
)
def test_invalid_arguments_create_no_state(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        nvml_simulator.create(tmp_path / "gpus", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_without_replace(tmp_path: Path) -> None:
    path = nvml_simulator.create(tmp_path / "gpus", count=1)
    with pytest.raises(UsageError, match="exists already"):
        nvml_simulator.create(path, count=2)
    assert len(nvml_simulator.describe(path).gpus) == 1
    nvml_simulator.create(path, count=2, replace=True)
    assert len(nvml_simulator.describe(path).gpus) == 2
    assert [found.name for found in tmp_path.iterdir()] == ["gpus"]


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"nowhere/gpus: No such file"):
        nvml_simulator.create(tmp_path / "nowhere" / "gpus")


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "another file":
        path.write_bytes(os.urandom(len(content)))
    elif how == "truncated":
        path.write_bytes(content[:-8])
    else:
        path.write_bytes(content[:8] + b"\xff\0\0\0" + content[12:])


@pytest.mark.parametrize(
    ("how", "code"), [("missing", 9), ("empty", 9), ("another file", 9), ("truncated", 18), ("another version", 18)]
)
def test_a_damaged_state_is_a_missing_driver_or_a_wrong_version(
    how: str, code: int, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    path = make_machine().path
    damage(path, how)
    with pytest.raises(Exception, match=r"Driver|version") as raised:
        start_nvml()
    assert raised.value.value == code  # type: ignore[attr-defined]
    with pytest.raises(OperationError, match=r"another version|not a readable state"):
        Machine(path)


def test_a_missing_state_is_a_missing_driver(start_nvml: StartNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nvml_simulator.STATE_VARIABLE, raising=False)
    with pytest.raises(Exception, match="Driver Not Loaded"):
        start_nvml()
    with pytest.raises(UsageError, match=nvml_simulator.STATE_VARIABLE):
        nvml_simulator.occupy(0, 1.0, 0.5)
