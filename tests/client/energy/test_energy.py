"""Energy of windows from a counter that advances in steps, compared with the true energy."""

from __future__ import annotations

import csv
import itertools
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.energy import CounterHistory, Edge, Energy, Reading, energy_between, energy_of_power

STEP = 0.1


def sampled(power: list[float], phase: float, interval: float, call: float, rng: random.Random) -> CounterHistory:
    """Readings of a counter with a power for each step; their interval jitters by a tenth."""
    history = CounterHistory()
    moment = 0.0
    while moment < len(power) * STEP:
        steps = math.floor((moment + call / 2 + phase) / STEP)
        joules = true_energy(power, phase, steps * STEP - phase)
        history.add(Reading(moment, moment + call, round(joules * 1000)))
        moment += interval * rng.uniform(0.9, 1.1)
    return history


def true_energy(power: list[float], phase: float, moment: float) -> float:
    """Energy used until a moment; each entry of power lasts a step of the counter."""
    steps, part = divmod((moment + phase) / STEP, 1.0)
    return (sum(power[: int(steps)]) + (power[int(steps)] * part if int(steps) < len(power) else 0.0)) * STEP


@pytest.mark.parametrize("interval", [0.005, 0.01, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_energy_of_fifty_milliseconds_at_a_steady_load_is_accurate_to_two_percent(interval: float, seed: int) -> None:
    rng = random.Random(seed)
    power, phase = [700.0] * 60, rng.uniform(0, STEP)
    edges = sampled(power, phase, interval, 0.0005, rng).edges()
    for _ in range(200):
        begin = rng.uniform(3.5, 5.5)
        energy = energy_between(edges, begin, begin + 0.05)
        assert energy.joules == pytest.approx(35.0, rel=0.02)


@given(
    power=st.lists(st.floats(20, 700), min_size=20, max_size=40),
    phase=st.floats(0, STEP, exclude_max=True),
    seed=st.integers(0, 1000),
    window=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_true_energy_is_within_the_uncertainty(
    power: list[float], phase: float, seed: int, window: tuple[float, float]
) -> None:
    edges = sampled(power, phase, 0.01, 0.001, random.Random(seed)).edges()
    # The power before the first edge is unknown, and so is its effect on the time of that edge.
    first, last = edges[1].time_seconds, edges[-2].time_seconds
    begin, end = sorted(first + (last - first) * part for part in window)
    energy = energy_between(edges, begin, end)
    expected = true_energy(power, phase, end) - true_energy(power, phase, begin)
    assert abs(energy.joules - expected) <= energy.uncertainty_joules + 0.002


def test_an_open_window_extrapolates_the_last_power_with_a_larger_uncertainty() -> None:
    edges = [Edge(k * STEP, k * STEP, round(k * 50_000)) for k in range(10)]
    closed = energy_between(edges, 0.2, 0.9)
    running = energy_between(edges, 0.2, 1.0)
    assert closed == Energy(350.0, 0.0)
    assert running == Energy(400.0, 50.0)


def test_a_decrease_of_the_counter_is_a_reset_that_discards_earlier_edges() -> None:
    history = CounterHistory()
    for number, value in enumerate([100, 200, 300, 50, 150, 250, 350]):
        history.add(Reading(number, number, value))
    assert history.resets == 1
    assert [edge.energy_millijoules for edge in history.edges()] == [150, 250, 350]


def test_edges_of_a_periodic_counter_are_narrower_than_its_readings() -> None:
    rng = random.Random(1)
    history = sampled([300.0] * 60, 0.03, 0.02, 0.0, rng)
    last = history.edges()[-20:]
    assert max(edge.uncertainty_seconds for edge in last) < 0.004
    for edge in last:
        periods = (edge.time_seconds + 0.03) / STEP
        assert abs(periods - round(periods)) * STEP <= edge.uncertainty_seconds + 1e-9


def test_edges_of_an_aperiodic_counter_are_unchanged() -> None:
    rng = random.Random(2)
    history = CounterHistory()
    moment = 0.0
    for number in range(40):
        moment += rng.uniform(0.02, 0.3)
        history.add(Reading(moment, moment, number))
    assert all(edge.latest_seconds > edge.earliest_seconds for edge in history.edges())


@pytest.mark.parametrize("edges", [[], [Edge(0, 0, 1)]])
def test_too_few_edges_are_an_error(edges: list[Edge]) -> None:
    with pytest.raises(ValueError, match="at least two are needed"):
        energy_between(edges, 0, 1)


# Readings of an H200 (driver 580.159.04) by benchmarks/energy_counter.py, under a steady load and in bursts.
RECORDINGS = Path(__file__).with_name("recordings")


def recorded(name: str) -> list[dict[str, float]]:
    with (RECORDINGS / f"{name}.csv").open(newline="") as stream:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]


def history_of(rows: list[dict[str, float]]) -> CounterHistory:
    history = CounterHistory()
    for row in rows:
        history.add(Reading(row["begin_seconds"], row["end_seconds"], int(row["energy_millijoules"])))
    return history


@pytest.mark.parametrize("name", ["h200_steady", "h200_burst"])
def test_a_recorded_counter_has_a_period_of_a_tenth_of_a_second(name: str) -> None:
    edges = history_of(recorded(name)).edges()
    assert len(edges) > 45
    for before, after in itertools.pairwise(edges[-32:]):
        gap = after.time_seconds - before.time_seconds
        assert abs(gap - 0.1) <= before.uncertainty_seconds + after.uncertainty_seconds
    assert max(edge.uncertainty_seconds for edge in edges[-32:]) < 0.005


@pytest.mark.parametrize("name", ["h200_steady", "h200_burst"])
def test_a_recorded_counter_agrees_with_integrated_power_within_both_uncertainties(name: str) -> None:
    rows = recorded(name)
    edges = history_of(rows).edges()
    inside = [row for row in rows if edges[1].time_seconds <= row["begin_seconds"] <= edges[-2].time_seconds]
    counted = energy_between(edges, inside[0]["begin_seconds"], inside[-1]["begin_seconds"])
    integrated = energy_of_power([(row["begin_seconds"], row["power_watts"]) for row in inside])
    difference = abs(counted.joules - integrated.joules)
    assert counted.joules > 1000
    assert difference <= counted.uncertainty_joules + integrated.uncertainty_joules
    assert counted.uncertainty_joules < 0.02 * counted.joules
