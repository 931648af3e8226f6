"""Energy of windows from a counter that steps, against the energy that made it step."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.energy import CounterHistory, Edge, Energy, Reading, energy_between

STEP = 0.1


def seen(power: list[float], phase: float, interval: float, call: float, rng: random.Random) -> CounterHistory:
    """What a sampler sees of a counter with a power for each step; the readings jitter by a tenth."""
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
    whole, part = divmod((moment + phase) / STEP, 1.0)
    return (sum(power[: int(whole)]) + (power[int(whole)] * part if int(whole) < len(power) else 0.0)) * STEP


@pytest.mark.parametrize("interval", [0.005, 0.01, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_fifty_milliseconds_at_a_steady_load_are_right_within_two_percent(interval: float, seed: int) -> None:
    rng = random.Random(seed)
    power, phase = [700.0] * 60, rng.uniform(0, STEP)
    edges = seen(power, phase, interval, 0.0005, rng).edges()
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
def test_the_truth_is_within_the_uncertainty(
    power: list[float], phase: float, seed: int, window: tuple[float, float]
) -> None:
    edges = seen(power, phase, 0.01, 0.001, random.Random(seed)).edges()
    first, last = edges[0].time_seconds, edges[-1].time_seconds
    begin, end = sorted(first + (last - first) * part for part in window)
    energy = energy_between(edges, begin, end)
    truth = true_energy(power, phase, end) - true_energy(power, phase, begin)
    assert abs(energy.joules - truth) <= energy.uncertainty_joules + 0.002


def test_an_open_window_goes_on_at_the_last_power_and_says_that_it_guesses() -> None:
    edges = [Edge(k * STEP, k * STEP, round(k * 50_000)) for k in range(10)]
    closed = energy_between(edges, 0.2, 0.9)
    running = energy_between(edges, 0.2, 1.0)
    assert closed == Energy(350.0, 0.0)
    assert running == Energy(400.0, 50.0)


def test_a_counter_that_falls_was_reset_and_nothing_is_read_across() -> None:
    history = CounterHistory()
    for number, value in enumerate([100, 200, 300, 50, 150, 250, 350]):
        history.add(Reading(number, number, value))
    assert history.resets == 1
    assert [edge.energy_millijoules for edge in history.edges()] == [150, 250, 350]


def test_edges_are_narrower_than_the_readings_when_the_counter_has_a_beat() -> None:
    rng = random.Random(1)
    history = seen([300.0] * 60, 0.03, 0.02, 0.0, rng)
    last = history.edges()[-20:]
    assert max(edge.uncertainty_seconds for edge in last) < 0.004
    for edge in last:
        beats = (edge.time_seconds + 0.03) / STEP
        assert abs(beats - round(beats)) * STEP <= edge.uncertainty_seconds + 1e-9


def test_without_a_beat_the_edges_stay_as_they_were_seen() -> None:
    rng = random.Random(2)
    history = CounterHistory()
    moment = 0.0
    for number in range(40):
        moment += rng.uniform(0.02, 0.3)
        history.add(Reading(moment, moment, number))
    assert all(edge.latest_seconds > edge.earliest_seconds for edge in history.edges())


@pytest.mark.parametrize("edges", [[], [Edge(0, 0, 1)]])
def test_too_few_edges_are_no_measurement(edges: list[Edge]) -> None:
    with pytest.raises(ValueError, match="at least two are needed"):
        energy_between(edges, 0, 1)
