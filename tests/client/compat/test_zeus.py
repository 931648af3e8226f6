"""The windows with Zeus' names, beside the real Zeus on the same simulated GPUs."""

import csv
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

import nvml_simulator
from support.sampled_machine import SampledMachine, square_wave, steady
from support.test_sets.parameters import exhaustive_after
from wattloop.compat import zeus as compat
from wattloop.compat import zeus_windows
from wattloop.energy_monitor import EnergyMonitor

STEP_SECONDS = 0.1


@pytest.fixture(scope="module")
def zeus() -> Any:
    """The real package. It imports scikit-learn and pandas, which every process of the tests would pay for."""
    import zeus.device.gpu  # noqa: PLC0415
    import zeus.monitor.energy  # noqa: PLC0415

    return zeus


@pytest.fixture
def sampled(zeus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SampledMachine]:
    """Two GPUs with three seconds of readings, which the monitors of this module use."""
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, "")
    machine = SampledMachine(tmp_path / "gpus", gpus=2)
    machine.run(steady(), 3.0)
    monkeypatch.setattr(zeus_windows, "EnergyMonitor", lambda gpus: EnergyMonitor._with_sampler(machine.sampler, gpus))
    yield machine
    machine.close()
    # Zeus initializes NVML once for a process, and never ends it. Later tests have other GPUs.
    zeus.device.gpu._gpus = None
    with suppress(pynvml.NVMLError_Uninitialized):
        while True:
            pynvml.nvmlShutdown()


@pytest.mark.parametrize("method", ["__init__", "begin_window", "end_window", "reset_windows"])
def test_the_arguments_are_those_of_zeus(zeus: Any, method: str) -> None:
    both = (compat.ZeusMonitor, zeus.monitor.ZeusMonitor)
    ours, theirs = (inspect.signature(getattr(each, method)).parameters for each in both)
    assert [(each.name, each.default) for each in ours.values()] == [
        (each.name, each.default) for each in theirs.values()
    ]


def test_a_measurement_has_the_attributes_of_zeus(zeus: Any) -> None:
    names = {field.name for field in dataclasses.fields(zeus.monitor.energy.Measurement)} | {"total_energy"}
    assert names <= set(dir(compat.Measurement(None, [0])))


def test_both_measure_the_same_energy(zeus: Any, sampled: SampledMachine) -> None:
    ours = compat.ZeusMonitor(gpu_indices=[0, 1], cpu_indices=[])
    theirs = zeus.monitor.ZeusMonitor(gpu_indices=[0, 1], cpu_indices=[])
    exact = [sampled.joules(gpu) for gpu in (0, 1)]
    for monitor in (ours, theirs):
        monitor.begin_window("epoch", sync_execution=False)
    sampled.run(square_wave(0.3), 4.0)
    result, reference = (monitor.end_window("epoch", sync_execution=False) for monitor in (ours, theirs))
    exact = [sampled.joules(gpu) - exact[gpu] for gpu in (0, 1)]
    sampled.run(steady(), 1.0)
    assert result.gpu_energy.keys() == reference.gpu_energy.keys()
    for gpu in (0, 1):
        # Zeus' difference of two readings is wrong by up to a step of the counter at each end.
        assert result.gpu_energy[gpu] == pytest.approx(reference.gpu_energy[gpu], abs=2 * STEP_SECONDS * 700)
        assert abs(result.gpu_energy[gpu] - exact[gpu]) <= abs(reference.gpu_energy[gpu] - exact[gpu]) + 2
    assert result.total_energy == pytest.approx(sum(exact), rel=0.01)
    assert result.cpu_energy is None
    assert reference.cpu_energy is None


def test_errors_are_value_errors_as_in_zeus(zeus: Any, sampled: SampledMachine) -> None:
    for monitor in (compat.ZeusMonitor(cpu_indices=[]), zeus.monitor.ZeusMonitor(cpu_indices=[])):
        monitor.begin_window("a", sync_execution=False)
        with pytest.raises(ValueError, match="already"):
            monitor.begin_window("a", sync_execution=False)
        monitor.begin_window("a", sync_execution=False, restart=True)
        cancelled = monitor.end_window("a", sync_execution=False, cancel=True)
        assert (cancelled.time, cancelled.gpu_energy, cancelled.total_energy) == (0.0, {0: 0.0, 1: 0.0}, 0.0)
        with pytest.raises(ValueError, match="'a'"):
            monitor.end_window("a", sync_execution=False)
        monitor.begin_window("b", sync_execution=False)
        monitor.reset_windows()
        monitor.begin_window("b", sync_execution=False)


def test_the_log_has_the_columns_of_zeus_and_each_window_once(
    zeus: Any, sampled: SampledMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
    peer = zeus.monitor.ZeusMonitor(cpu_indices=[], log_file=tmp_path / "zeus.csv")
    peer.log_file.close()
    assert (tmp_path / "zeus.csv").read_text() == header
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monitor = compat.ZeusMonitor(cpu_indices=[], log_file=tmp_path / "folder" / "ours.csv")
    path = tmp_path / "folder" / "ours.csv"
    for number in range(3):
        monitor.begin_window(f"step {number}")
        sampled.run(steady(), 1.0)
        now[0] += 1.0
        monitor.end_window(f"step {number}")
    assert len(path.read_text().splitlines()) == 3
    monitor._log.close()
    with path.open(newline="") as stream:
        assert stream.readline() == header
        rows = list(csv.reader(stream))
    assert [row[1] for row in rows] == ["step 0", "step 1", "step 2"]
    assert [float(row[2]) for row in rows] == [pytest.approx(1.0)] * 3
    assert all(float(row[3]) > 100 for row in rows)


def test_what_the_page_names_of_zeus_and_of_wattloop_exists(zeus: Any) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating-from-zeus.md").read_text(encoding="utf-8")
    theirs = {
        name for row in page.splitlines() if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    classes = {name for name in theirs if name[0].isupper()}
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(zeus.__path__[0]).rglob("*.py"))
    assert len(classes) >= 8
    assert [name for name in sorted(classes) if not re.search(rf"^class {name}\b", source, re.MULTILINE)] == []
    # What needs a framework is looked up in the source.
    client = Path(compat.__file__).parents[2]
    for module, name in re.findall(r"`(wattloop[\w.]*)\.([A-Z]\w+)", page):
        path = client.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")), f"{module}.{name}"


# Zeus, which takes seconds to import, shows that what is expected is what it does.
@pytest.mark.parametrize("module", exhaustive_after(["wattloop.compat.zeus", "zeus.monitor"]))
def test_without_a_driver_a_window_has_its_time_alone(module: str) -> None:
    """In a process of its own, since this one has loaded the simulator's driver."""
    program = (
        "import json, sys, time\n"
        "module = __import__(sys.argv[1], fromlist=['ZeusMonitor'])\n"
        "monitor = module.ZeusMonitor()\n"
        "monitor.begin_window('a')\n"
        "result = monitor.end_window('a')\n"
        "cancelled = [monitor.begin_window('b'), monitor.end_window('b', cancel=True)][1]\n"
        "print(json.dumps([monitor.gpu_indices, result.gpu_energy, result.total_energy, result.time > 0, "
        "cancelled.total_energy]))\n"
    )
    environment = {name: value for name, value in os.environ.items() if "WATTLOOP" not in name and name[:3] != "LD_"}
    command = [sys.executable, "-W", "ignore", "-c", program, module]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    if found[0]:
        pytest.skip("this machine has an NVIDIA driver")
    assert found == [[], {}, 0, True, 0]
    assert module == "zeus.monitor" or "windows measure time alone" in ran.stderr
