"""Energy against time: the points, and their Pareto front."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.plots.tradeoff import TradeoffPoint, pareto_front, tradeoff_points
from wattloop_planner.bandit.configuration import Configuration

Make = Callable[..., Any]


def test_a_profile_gives_a_point_for_every_limit(history: Make, record: Make, profile: Make) -> None:
    runs = [record(0, epochs=8.0), record(1, epochs=12.0, power_limit_watts=100.0)]
    shown = history(*runs, profiles=(profile(32, (100, 120.0, 2.0), (200, 180.0, 1.5), (300, 250.0, 1.0)),))
    assert tradeoff_points(shown) == (
        TradeoffPoint(Configuration(32), 100.0, 1200.0, 20.0, runs=1),
        TradeoffPoint(Configuration(32), 200.0, 1800.0, 15.0, runs=0),
        TradeoffPoint(Configuration(32), 300.0, 2500.0, 10.0, runs=1),
    )


def test_without_a_profile_a_point_is_the_mean_of_its_runs(history: Make, record: Make) -> None:
    runs = [record(0, energy_joules=1000.0, time_seconds=8.0), record(1), record(2, power_limit_watts=None)]
    assert tradeoff_points(history(*runs)) == (
        TradeoffPoint(Configuration(32), None, 2000.0, 10.0, runs=1),
        TradeoffPoint(Configuration(32), 300.0, 1500.0, 9.0, runs=2),
    )


def test_a_limit_outside_the_profile_is_a_point_of_its_runs(history: Make, record: Make, profile: Make) -> None:
    shown = history(record(power_limit_watts=180.0), profiles=(profile(32, (100, 120.0, 2.0)),))
    assert [(point.power_limit_watts, point.runs) for point in tradeoff_points(shown)] == [(100.0, 0), (180.0, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"result": "Stopped"},
        {"result": "MissingMetric", "metric": None},
        {"attribution": "Shared"},
        {"energy_joules": 0.0},
    ],
)
def test_a_run_without_the_target_or_with_shared_energy_gives_no_point(
    history: Make, record: Make, changes: dict[str, object]
) -> None:
    assert tradeoff_points(history(record(**changes))) == ()


def test_only_runs_on_the_latest_gpus_are_compared(history: Make, record: Make, profile: Make) -> None:
    runs = [record(0, gpu_product="NVIDIA V100"), record(1, batch_size=64)]
    shown = history(*runs, profiles=(profile(64, (100, 1.0, 1.0), gpu_model="NVIDIA V100"),))
    assert [(point.configuration.batch_size, point.runs) for point in tradeoff_points(shown)] == [(64, 1)]


points = st.lists(
    st.builds(
        TradeoffPoint,
        configuration=st.integers(1, 4).map(Configuration),
        power_limit_watts=st.none(),
        energy_joules=st.integers(1, 8).map(float),
        time_seconds=st.integers(1, 8).map(float),
        runs=st.just(1),
    ),
    max_size=12,
)


def dominates(one: TradeoffPoint, other: TradeoffPoint) -> bool:
    no_worse = one.energy_joules <= other.energy_joules and one.time_seconds <= other.time_seconds
    return no_worse and (one.energy_joules, one.time_seconds) != (other.energy_joules, other.time_seconds)


@given(points=points)
def test_the_front_contains_each_undominated_point_once_the_fastest_first(points: list[TradeoffPoint]) -> None:
    front = pareto_front(points)
    undominated = {
        (each.time_seconds, each.energy_joules) for each in points if not any(dominates(one, each) for one in points)
    }
    assert [(each.time_seconds, each.energy_joules) for each in front] == sorted(undominated)
