"""The energy of windows on simulated GPUs, compared with the simulator's exact energy."""

import bisect
import itertools
import math
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sampled_machine import SampledMachine, loads
from support.test_sets.parameters import exhaustive_after
from wattloop.energy.energy_timeline import EnergyTimeline, WindowEnergy
from wattloop.energy.gpu_reading import GpuReading

LENGTHS = (0.05, 0.1, 0.3, 1.0, 5.0)
LOADS = sorted(loads(random.Random(0)))
# A periodic one and a random one come first.
PERIODIC_AND_RANDOM_FIRST = sorted(
    LOADS, key=lambda load: load not in {"square wave of 266 ms", "random steps of 200 ms"}
)


@contextmanager
def sampled_machine(seed: int, gpus: int = 1) -> Iterator[SampledMachine]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
        machine = SampledMachine(Path(folder) / "gpus", seed=seed, gpus=gpus)
        yield machine
        machine.close()


def run_of_windows(load: str, seed: int, seconds: float = 24.0) -> dict[float, list[tuple[WindowEnergy, float]]]:
    """By length, the energies of windows at random moments, each with its exact energy."""
    rng = random.Random(seed)
    with sampled_machine(seed) as machine:
        parts = loads(rng)[load]()
        points = []
        while machine.now() < seconds:
            machine.run(parts, rng.uniform(0.001, 0.05))
            points.append((machine.now(), machine.joules()))
        (timeline,) = machine.sampler._timelines.values()
        found: dict[float, list[tuple[WindowEnergy, float]]] = {}
        for length in LENGTHS:
            for _ in range(60):
                begin = rng.choice([point for point in points if 1.5 < point[0] < seconds - length - 1.0])
                end = min(points, key=lambda point: abs(point[0] - begin[0] - length))
                if end[0] > begin[0]:
                    energy = timeline.between(begin[0], end[0])
                    assert energy is not None
                    found.setdefault(length, []).append((energy, end[1] - begin[1]))
        return found


def root_mean_square(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))


@pytest.mark.parametrize("seed", exhaustive_after(range(3)))
def test_a_window_of_fifty_milliseconds_at_a_steady_load_is_within_two_percent(seed: int) -> None:
    for energy, exact in run_of_windows("steady", seed)[0.05]:
        assert energy.joules == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("load", exhaustive_after(PERIODIC_AND_RANDOM_FIRST, usual=2))
def test_the_error_in_units_of_the_stated_uncertainty_is_about_standard(load: str) -> None:
    errors: dict[float, list[float]] = {}
    for seed in (1, 2):
        for length, pairs in run_of_windows(load, seed).items():
            errors.setdefault(length, []).extend((each.joules - exact) / each.deviation_joules for each, exact in pairs)
    for length, standard in errors.items():
        assert root_mean_square(standard) < 1.5, length
        assert sum(abs(error) > 3 for error in standard) <= 0.03 * len(standard), length
    # Not so large either that it says nothing.
    assert max(root_mean_square(standard) for standard in errors.values()) > 0.1


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    load=st.sampled_from(LOADS),
    parts=st.lists(st.floats(0.001, 0.7), min_size=2, max_size=12),
)
def test_the_energies_of_consecutive_windows_add_up_to_that_of_the_window_around_them(
    seed: int, load: str, parts: list[float]
) -> None:
    with sampled_machine(seed, gpus=2) as machine:
        work = loads(random.Random(seed))[load]()
        machine.run(work, 2.0)
        moments, exact = [machine.now()], [machine.joules(1)]
        for part in parts:
            machine.run(work, part)
            moments.append(machine.now())
            exact.append(machine.joules(1))
        machine.run(work, 1.0)
        timeline = machine.sampler._timelines[machine.uuids[1]]
        inner = [timeline.between(begin, end) for begin, end in itertools.pairwise(moments)]
        outer = timeline.between(moments[0], moments[-1])
        assert sum(each.joules for each in inner if each is not None) == pytest.approx(outer.joules, abs=1e-6)
        assert abs(outer.joules - (exact[-1] - exact[0])) <= 6 * outer.deviation_joules
        assert not outer.missing


@pytest.mark.parametrize("load", exhaustive_after(["square wave of 266 ms", "steady", "ramp"]))
def test_a_window_of_a_minute_is_accurate(load: str) -> None:
    with sampled_machine(6) as machine:
        work = loads(random.Random(6))[load]()
        machine.run(work, 2.0)
        begin, exact = machine.now(), machine.joules()
        machine.run(work, 60.0)
        end, exact = machine.now(), machine.joules() - exact
        machine.run(work, 1.0)
        (timeline,) = machine.sampler._timelines.values()
        energy = timeline.between(begin, end)
    assert energy.joules == pytest.approx(exact, rel=0.001)
    assert energy.joules == pytest.approx(exact, abs=4 * energy.deviation_joules)


def test_a_gap_in_the_readings_loses_no_energy() -> None:
    with sampled_machine(3) as machine:
        work = loads(random.Random(3))["square wave of 2 s"]()
        machine.run(work, 3.0)
        begin, exact = machine.now(), machine.joules()
        machine.run(work, 1.0)
        machine.sampling = False
        machine.run(work, 4.3)
        within = machine.now() - 2.0
        machine.sampling = True
        machine.run(work, 1.0)
        end, exact = machine.now(), machine.joules() - exact
        machine.run(work, 1.0)
        (timeline,) = machine.sampler._timelines.values()
        whole, part = timeline.between(begin, end), timeline.between(begin, within)
    assert whole.joules == pytest.approx(exact, abs=5 * whole.deviation_joules)
    assert whole.deviation_joules < 0.01 * exact
    assert not whole.missing
    assert "no readings for 4." in part.missing
    assert part.deviation_joules > 0.1 * part.joules


def test_a_reset_of_the_counter_within_a_window_makes_it_incomplete() -> None:
    with sampled_machine(4) as machine:
        work = loads(random.Random(4))["steady"]()
        machine.run(work, 3.0)
        before, exact = machine.now(), machine.joules()
        machine.run(work, 1.0)
        machine.machine.reset_energy_counter(0)
        machine.run(work, 1.0)
        after, exact = machine.now(), machine.joules() - exact
        machine.run(work, 3.0)
        (timeline,) = machine.sampler._timelines.values()
        across, later = timeline.between(before, after), timeline.between(after + 0.5, after + 1.5)
    assert across.missing == "the GPU's energy counter was reset"
    assert across.joules == pytest.approx(exact, rel=0.1)
    assert not later.missing


def test_a_gpu_without_a_counter_is_integrated_from_its_power() -> None:
    timeline = EnergyTimeline()
    for number in range(300):
        timeline.add(GpuReading("GPU-1", number * 0.04, number * 0.04, None, 100.0))
    energy = timeline.between(1.0, 11.0)
    assert energy == WindowEnergy(pytest.approx(1000.0), pytest.approx(0.0, abs=0.01), integrated=True)


def test_the_deviation_of_integrated_power_covers_changes_within_the_window() -> None:
    """Readings every 67 ms of a load that changes at random moments: errors of many windows are within it."""
    rng, scaled = random.Random(4), []
    for _ in range(200):
        changes = sorted(rng.uniform(0.0, 12.0) for _ in range(25))
        powers = [rng.uniform(50.0, 250.0) for _ in range(26)]
        timeline = EnergyTimeline()
        for number in range(180):
            moment = number * 0.067
            timeline.add(GpuReading("GPU-1", moment, moment, None, powers[bisect.bisect(changes, moment)]))
        energy = timeline.between(1.0, 10.0)
        bounds = [1.0, *(change for change in changes if 1.0 < change < 10.0), 10.0]
        exact = sum((end - begin) * powers[bisect.bisect(changes, begin)] for begin, end in itertools.pairwise(bounds))
        scaled.append((energy.joules - exact) / energy.deviation_joules)
    assert sum(abs(each) < 1 for each in scaled) > 0.6 * len(scaled)
    assert max(abs(each) for each in scaled) < 4


def test_an_open_window_is_extrapolated_with_a_larger_uncertainty() -> None:
    with sampled_machine(5) as machine:
        work = loads(random.Random(5))["steady"]()
        machine.run(work, 3.0)
        begin, exact = machine.now(), machine.joules()
        machine.run(work, 0.55)
        (timeline,) = machine.sampler._timelines.values()
        running = timeline.between(begin, machine.now())
        exact = machine.joules() - exact
        now = machine.now()
        machine.run(work, 1.0)
        ended = timeline.between(begin, now)
    assert running.joules == pytest.approx(exact, abs=4 * running.deviation_joules)
    assert running.deviation_joules > ended.deviation_joules


def test_a_window_from_before_the_first_reading_is_incomplete() -> None:
    timeline = EnergyTimeline()
    for number in range(100):
        timeline.add(GpuReading("GPU-1", 5 + number * 0.04, 5 + number * 0.04, number * 4000, 100.0))
    energy = timeline.between(2.0, 8.0)
    assert energy.missing == "the first reading came 3.0 s after its begin"


@pytest.mark.parametrize("seed", exhaustive_after(range(3)))
def test_the_energy_at_the_edges_is_exact_at_their_times(seed: int) -> None:
    """Each time is wrong by less than a millisecond, although a reading takes 3.5 ms and comes every 67 ms."""
    with sampled_machine(seed) as machine:
        work = loads(random.Random(seed))["steady"]()
        machine.run(work, 60.0)
        (timeline,) = machine.sampler._timelines.values()
        begin, exact = machine.now(), machine.joules()
        machine.run(work, 1.0)
        watts = (machine.joules() - exact) / (machine.now() - begin)
    final, known = timeline.edges(0), timeline.edges(0, final=False)
    assert 200 < len(final) < len(known)
    assert known[: len(final)] == final
    assert timeline.edges(150) == final[150:]
    zero = final[0].seconds - final[0].joules / watts
    errors = [edge.seconds - zero - edge.joules / watts for edge in final]
    assert max(errors) - min(errors) < 0.003
    assert root_mean_square([edge.deviation_seconds for edge in final]) < 0.0015
    assert all(edge.periodic for edge in final)


def test_the_edges_of_a_counter_that_advances_at_each_reading_have_no_period() -> None:
    timeline = EnergyTimeline()
    for number in range(400):
        timeline.add(GpuReading("GPU-1", number * 0.067, number * 0.067 + 0.004, number * 6_700, 100.0))
    assert not any(edge.periodic for edge in timeline.edges(0))
    assert all(0.003 < edge.deviation_seconds < 0.02 for edge in timeline.edges(0))


def test_the_memory_of_a_timeline_is_bounded() -> None:
    timeline = EnergyTimeline()
    for number in range(40_000):
        timeline.add(GpuReading("GPU-1", number * 0.05, number * 0.05, number // 2 * 10_000, 100.0))
    assert len(timeline._joules) < 13_000
    assert len(timeline._power) < 33_000
    recent = timeline.between(1990.0, 1995.0)
    assert recent.joules == pytest.approx(500.0, rel=0.01)
    old = timeline.between(10.0, 1995.0)
    assert "its begin is older" in old.missing
