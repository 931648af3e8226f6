"""Readings of an H200 (driver 580.159.04), taken by benchmarks/energy_counter.py under a steady load and in bursts."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from wattloop.energy import CounterHistory, Reading, energy_between, energy_of_power

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
def test_the_counter_has_a_beat_of_a_tenth_of_a_second(name: str) -> None:
    edges = history_of(recorded(name)).edges()
    assert len(edges) > 45
    for before, after in itertools.pairwise(edges[-32:]):
        gap = after.time_seconds - before.time_seconds
        assert abs(gap - 0.1) <= before.uncertainty_seconds + after.uncertainty_seconds
    assert max(edge.uncertainty_seconds for edge in edges[-32:]) < 0.005


@pytest.mark.parametrize("name", ["h200_steady", "h200_burst"])
def test_the_counter_agrees_with_the_power_integrated_within_both_uncertainties(name: str) -> None:
    rows = recorded(name)
    edges = history_of(rows).edges()
    inside = [row for row in rows if edges[1].time_seconds <= row["begin_seconds"] <= edges[-2].time_seconds]
    counted = energy_between(edges, inside[0]["begin_seconds"], inside[-1]["begin_seconds"])
    integrated = energy_of_power([(row["begin_seconds"], row["power_watts"]) for row in inside])
    apart = abs(counted.joules - integrated.joules)
    assert counted.joules > 1000
    assert apart <= counted.uncertainty_joules + integrated.uncertainty_joules
    assert counted.uncertainty_joules < 0.02 * counted.joules
