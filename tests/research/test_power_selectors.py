import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import UsageError
from wattloop.power.selectors import Cost, Energy, MaxSlowdown, MeasuredLimit, Selector, Time
from wattloop_research.command_line.power import read_power_profile

SELECTORS: dict[str, Selector] = {
    "Energy": Energy(),
    "Time": Time(),
    **{f"ZeusCost{eta:g}": Cost(eta) for eta in (0, 0.25, 0.5, 0.75, 1)},
    **{f"MaxSlowdown{factor}": MaxSlowdown(factor) for factor in (1.0, 1.1, 1.2, 1.5)},
}


@pytest.mark.parametrize("column", SELECTORS)
def test_every_published_profile_selects_the_expected_limit(power_profiles: Path, column: str) -> None:
    with (power_profiles / "expected_selection.csv").open() as file:
        expected = {row["profile"]: float(row[column]) for row in csv.DictReader(file)}
    chosen = {
        name: SELECTORS[column].select(read_power_profile(power_profiles / name)).power_limit_watts for name in expected
    }
    assert chosen == expected
    assert len(chosen) == 4


def test_the_cost_counts_the_gpus_of_all_ranks() -> None:
    slow = MeasuredLimit(100, energy_joules=1000, time_seconds=12, gpus=4)
    fast = MeasuredLimit(300, energy_joules=2000, time_seconds=10, gpus=4)
    assert Cost(0.5).select([slow, fast]) is fast
    alone = [MeasuredLimit(m.power_limit_watts, m.energy_joules, m.time_seconds) for m in (slow, fast)]
    assert Cost(0.5).select(alone) is alone[0]


def test_of_equal_measurements_the_lowest_limit_is_selected() -> None:
    equal = [MeasuredLimit(limit, 10, 10) for limit in (300, 100, 200)]
    for selector in SELECTORS.values():
        assert selector.select(equal).power_limit_watts == 100


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.floats(1, 1e6), st.floats(1, 1e6)),
        min_size=1,
        max_size=12,
        unique_by=lambda row: row[0],
    ),
    st.floats(0, 1),
    st.floats(1, 3),
)
def test_each_selector_minimises_its_objective(rows: list[tuple[int, float, float]], eta: float, factor: float) -> None:
    measured = [MeasuredLimit(10.0 * limit, energy, time) for limit, energy, time in rows]
    top = max(measured, key=lambda m: m.power_limit_watts)
    cost = Cost(eta)
    paid = cost.cost_joules(cost.select(measured), measured)
    assert all(paid <= cost.cost_joules(m, measured) for m in measured)
    slow = MaxSlowdown(factor).select(measured)
    assert slow.time_seconds <= factor * top.time_seconds
    lower = [m for m in measured if m.power_limit_watts < slow.power_limit_watts]
    assert all(m.time_seconds > factor * top.time_seconds for m in lower)


@pytest.mark.parametrize("factor", [0.99, math.nan, math.inf])
def test_a_slowdown_factor_below_one_is_rejected(factor: float) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        MaxSlowdown(factor)


def test_no_measurement_and_repeated_limits_are_rejected() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Energy().select([])
    with pytest.raises(UsageError, match="100 W was measured twice"):
        Time().select([MeasuredLimit(100, 1, 1), MeasuredLimit(100, 2, 2)])


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_measurement_that_is_not_positive_and_finite_is_rejected(value: float) -> None:
    with pytest.raises(UsageError, match="must be positive"):
        MeasuredLimit(100, value, 1)
