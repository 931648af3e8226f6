"""Quantities as a person reads them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.domain.quantities import (
    KILOWATT_HOURS,
    MINUTES,
    energy_unit,
    money_text,
    percent_text,
    saving_text,
)
from wattloop_planner.estimate import Estimate

JOULES = st.floats(1e-3, 1e15)


@given(st.lists(JOULES, min_size=1))
def test_all_energies_of_a_job_have_the_unit_of_the_largest_and_read_back_with_three_digits(
    energies: list[float],
) -> None:
    unit = energy_unit(energies)
    for joules in energies:
        number, name = unit.text(joules).split()
        assert name == unit.name
        assert math.isclose(float(number.replace(",", "")) * unit.size, joules, rel_tol=6e-4)
    assert max(energies) >= unit.size or unit.name == "J"


def test_an_unknown_figure_is_not_zero() -> None:
    assert KILOWATT_HOURS.text(None) == money_text(None, "EUR") == "unknown"
    unknown = (percent_text(None), saving_text(None), MINUTES.interval_text(None), MINUTES.saving_text(None))
    assert set(unknown) == {"not known yet"}


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_a_saving_of_unknown_sign_is_its_interval_alone(value: float, width: float) -> None:
    saved = Estimate(value, value - width, value + width)
    numbers = (MINUTES.number(abs(each)) for each in (saved.low, saved.value, saved.high))
    low, middle, high = numbers
    if saved.has_known_sign:
        assert MINUTES.interval_text(saved).removeprefix("-").startswith(f"{middle} min (")
        assert MINUTES.saving_text(saved).startswith(f"{middle} min {'less' if value >= 0 else 'more'} (")
    else:
        assert MINUTES.interval_text(saved) == f"-{low} to {high} min"
        assert MINUTES.saving_text(saved) == f"between {low} min more and {high} min less"


@given(st.floats(-1e9, 100), st.floats(0, 1e9))
def test_a_saving_is_worded_by_its_sign_and_its_interval_has_both_ends(value: float, width: float) -> None:
    percent = Estimate(value, value - width, min(value + width, 100.0))
    text = saving_text(percent)
    if percent.has_known_sign:
        assert ("% less" if round(value) >= 0 else "% more") in text
        assert text.endswith(")")
    else:
        assert text.startswith("between ")
        assert text.endswith("% less")
    assert "-" not in text, "more and less say the sign"
