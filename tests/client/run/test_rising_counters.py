"""Energy counters and clocks of a run never fall, whatever the GPUs read."""

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.energy.gpu_reading import GpuReading, IntegratedEnergy
from wattloop.run.held_gpus import RisingCounters

MAX_WATTS = 400.0


def reading(millijoules: int, seconds: float, uuid: str = "GPU-0") -> GpuReading:
    return GpuReading(uuid, 0.0, 0.0, millijoules, None, clock_seconds=seconds)


def counted(counters: RisingCounters, *readings: tuple[int, float]) -> list[tuple[int, float]]:
    found = [counters.rising(reading(*each), MAX_WATTS) for each in readings]
    return [(each.cumulative_millijoules, each.clock_seconds) for each in found]


def test_counters_that_rise_are_those_that_were_read() -> None:
    readings = [(500, 1.0), (800, 2.0), (800, 2.0), (1200, 3.5)]
    counters = RisingCounters()
    assert counted(counters, *readings) == readings
    assert counters.falls == 0


def test_a_counter_that_was_reset_goes_on_with_what_it_counts_since(caplog: pytest.LogCaptureFixture) -> None:
    counters = RisingCounters()
    found = counted(counters, (900_000, 1.0), (950_000, 2.0), (30_000, 3.0), (70_000, 4.0), (10, 5.0))
    assert [each for each, _ in found] == [900_000, 950_000, 980_000, 1_020_000, 1_020_010]
    assert counters.falls == 2
    (message,) = caplog.messages
    assert message.startswith("GPU GPU-0: its counter began again, from 950000 mJ at 2.000 s to 30000 mJ")
    assert caplog.records[0].levelno == logging.WARNING


def test_a_lower_value_that_the_gpu_cannot_have_used_since_adds_nothing() -> None:
    assert counted(RisingCounters(), (9_000_000, 1.0), (8_000_000, 2.0), (8_000_500, 3.0)) == [
        (9_000_000, 1.0),
        (9_000_000, 2.0),
        (9_000_500, 3.0),
    ]


def test_a_clock_that_falls_goes_on_from_its_last_value() -> None:
    assert counted(RisingCounters(), (0, 100.0), (10, 3.0), (20, 4.5)) == [(0, 100.0), (10, 100.0), (20, 101.5)]


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.floats(0, 1e9)), min_size=2, max_size=20))
def test_no_counter_and_no_clock_ever_falls(readings: list[tuple[int, float]]) -> None:
    found = counted(RisingCounters(), *readings)
    assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in itertools.pairwise(found))


def test_integrated_energy_that_begins_again_goes_on_with_a_bound_that_has_what_may_be_missing() -> None:
    def integrated(millijoules: int, seconds: float, error: float) -> GpuReading:
        energy = IntegratedEnergy(millijoules, error, 0.0)
        return GpuReading("GPU-0", 0.0, 0.0, None, None, clock_seconds=seconds, integrated=energy)

    counters = RisingCounters()
    first = counters.rising(integrated(500_000, 1.0, 10.0), MAX_WATTS)
    second = counters.rising(integrated(30_000, 2.0, 2.0), MAX_WATTS)
    assert second.cumulative_millijoules == 530_000
    assert second.uncertainty_since(first) == pytest.approx(1000 * MAX_WATTS - 30_000 + 2.0)
    third = counters.rising(integrated(50_000, 3.0, 5.0), MAX_WATTS)
    assert third.cumulative_millijoules == 550_000
    assert third.uncertainty_since(second) == pytest.approx(3.0)
