"""Energy of processors and memory, from a folder like that of Linux."""

from pathlib import Path

import pytest

from wattloop.gpus.rapl import Rapl


def zone(folder: Path, name: str, counter: int, maximum: int = 262_143_328_850) -> Path:
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{counter}\n")
    (folder / "max_energy_range_uj").write_text(f"{maximum}\n")
    return folder


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    zone(tmp_path / "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path / "intel-rapl:0:0", "dram", 5_000_000, 65_712_999_613)
    zone(tmp_path / "intel-rapl:1", "package-1", 7_000_000)
    zone(tmp_path / "intel-rapl:1:0", "dram", 0)
    zone(tmp_path / "intel-rapl-mmio:0", "package-0", 1_000_000)
    zone(tmp_path / "dtpm", "all", 1)
    return tmp_path


def test_each_zone_counts_from_its_first_reading(powercap: Path) -> None:
    rapl = Rapl(powercap)
    assert rapl.joules() == {"package-0": 0, "package-0/dram": 0, "package-1": 0, "package-1/dram": 0}
    (powercap / "intel-rapl:0" / "energy_uj").write_text("3500000\n")
    (powercap / "intel-rapl:1:0" / "energy_uj").write_text("250000\n")
    rapl.read()
    assert rapl.joules() == {"package-0": 2.5, "package-0/dram": 0, "package-1": 0, "package-1/dram": 0.25}


def test_a_counter_that_wraps_around_loses_nothing(tmp_path: Path) -> None:
    folder = zone(tmp_path / "intel-rapl:0", "package-0", 262_143_000_000)
    rapl = Rapl(tmp_path)
    (folder / "energy_uj").write_text("671149\n")
    rapl.read()
    assert rapl.joules() == {"package-0": 1.0}


def test_zones_inside_their_package_are_found(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:0", "package-0", 0)
    zone(tmp_path / "intel-rapl:0" / "intel-rapl:0:1", "dram", 0)
    assert set(Rapl(tmp_path).joules()) == {"package-0", "package-0/dram"}


@pytest.mark.parametrize("missing_file", ["energy_uj", "max_energy_range_uj", "name"])
def test_an_unreadable_zone_is_left_out(powercap: Path, missing_file: str) -> None:
    (powercap / "intel-rapl:1:0" / missing_file).unlink()
    assert set(Rapl(powercap).joules()) == {"package-0", "package-0/dram", "package-1"}


def test_a_zone_that_becomes_unreadable_keeps_its_value(powercap: Path) -> None:
    rapl = Rapl(powercap)
    (powercap / "intel-rapl:0" / "energy_uj").write_text("2000000\n")
    rapl.read()
    (powercap / "intel-rapl:0" / "energy_uj").write_text("no number\n")
    rapl.read()
    assert rapl.joules()["package-0"] == 1.0
