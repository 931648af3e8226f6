"""Energy between the edges of a counter, and integrated from power, compared with the true energy."""

import itertools
import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.recorded_gpu import NAMES, RecordedGpu
from wattloop.energy.energy_history import Edge, energy_at
from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.energy.power_history import EnergyEstimate

STEP = 0.1


def true_energy(power: list[float], phase: float, moment: float) -> float:
    """Energy used until a moment; each entry of power lasts a step of the counter."""
    steps, part = divmod((moment + phase) / STEP, 1.0)
    return (sum(power[: int(steps)]) + (power[int(steps)] * part if int(steps) < len(power) else 0.0)) * STEP


def edges_of(readings: Iterable[tuple[float, float, int]]) -> list[Edge]:
    """The steps of a counter in (begin, end, millijoules) of its readings."""
    return [
        Edge(begin, end, counter)
        for (begin, _, before), (_, end, counter) in itertools.pairwise(readings)
        if counter != before
    ]


def sampled_edges(power: list[float], phase: float, rng: random.Random) -> list[Edge]:
    """The edges of a counter with a power for each step, read every 10 ms or so by calls of 1 ms."""
    readings = []
    moment = 0.0
    while moment < len(power) * STEP:
        steps = math.floor((moment + 0.0005 + phase) / STEP)
        joules = true_energy(power, phase, steps * STEP - phase)
        readings.append((moment, moment + 0.001, round(joules * 1000)))
        moment += 0.01 * rng.uniform(0.9, 1.1)
    return edges_of(readings)


@given(
    power=st.lists(st.floats(20, 700), min_size=20, max_size=40),
    phase=st.floats(0, STEP, exclude_max=True),
    seed=st.integers(0, 1000),
    window=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_true_energy_is_within_the_uncertainty(
    power: list[float], phase: float, seed: int, window: tuple[float, float]
) -> None:
    edges = sampled_edges(power, phase, random.Random(seed))
    # The power before the first edge is unknown, and so is its effect on the time of that edge.
    first, last = edges[1].time_seconds, edges[-2].time_seconds
    begin, end = sorted(first + (last - first) * part for part in window)
    until_begin, until_end = energy_at(edges, begin), energy_at(edges, end)
    expected = true_energy(power, phase, end) - true_energy(power, phase, begin)
    uncertainty = until_begin.uncertainty_joules + until_end.uncertainty_joules
    assert abs(until_end.joules - until_begin.joules - expected) <= uncertainty + 0.002


def test_after_the_last_edge_its_power_is_extrapolated_with_a_larger_uncertainty() -> None:
    edges = [Edge(k * STEP, k * STEP, round(k * 50_000)) for k in range(10)]
    assert energy_at(edges, 0.85) == EnergyEstimate(pytest.approx(425.0), pytest.approx(0.0))
    assert energy_at(edges, 1.0) == EnergyEstimate(pytest.approx(500.0), pytest.approx(50.0))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_counter_has_a_period_of_a_tenth_of_a_second(name: str) -> None:
    timeline = EnergyTimeline()
    for reading in RecordedGpu(name).readings:
        timeline.add(reading)
    edges = timeline.edges(0, final=False)
    assert len(edges) > 45
    for before, after in itertools.pairwise(edges):
        assert after.seconds - before.seconds == pytest.approx(0.1, abs=0.005)
    assert all(edge.periodic and edge.deviation_seconds < 0.005 for edge in edges[-32:])
