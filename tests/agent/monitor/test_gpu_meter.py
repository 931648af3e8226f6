"""The energy of processors for subscribers."""

from pathlib import Path

from wattloop_agent.monitor.gpu_meter import PROCESSORS_SECONDS, ProcessorMeter


def test_the_counters_are_read_at_most_once_an_interval_however_often_they_are_asked_for(tmp_path: Path) -> None:
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    for name, value in (("name", "package-0"), ("energy_uj", "1000000"), ("max_energy_range_uj", "262143328850")):
        (zone / name).write_text(f"{value}\n")
    now = [100.0]
    meter = ProcessorMeter(tmp_path, lambda: now[0])
    (zone / "energy_uj").write_text("3500000\n")
    assert meter.joules() == (100.0, {"package-0": 0.0})
    now[0] += PROCESSORS_SECONDS
    assert meter.joules() == (now[0], {"package-0": 2.5})
    (zone / "energy_uj").write_text("9000000\n")
    now[0] += PROCESSORS_SECONDS / 2
    assert meter.joules() == (100.0 + PROCESSORS_SECONDS, {"package-0": 2.5})


def test_a_node_without_readable_counters_has_no_zones(tmp_path: Path) -> None:
    assert ProcessorMeter(tmp_path).joules()[1] == {}
