"""Quantities as a person reads them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.domain.quantities import energy_text, energy_unit, money_text, percent_text, saving_text
from wattloop_planner.estimate import Estimate

JOULES = st.floats(1e-3, 1e15)


@given(JOULES)
def test_an_energy_is_at_least_one_of_its_unit_and_reads_back_with_three_digits(joules: float) -> None:
    size, name = energy_unit(joules)
    number, unit = energy_text(joules).split()
    assert unit == name
    assert math.isclose(float(number.replace(",", "")) * size, joules, rel_tol=6e-4)
    assert joules >= size or name == "J"


def test_an_unknown_energy_is_not_zero() -> None:
    assert energy_text(None) == "unknown"
    assert money_text(None, "EUR") == "unknown"
    assert percent_text(None) == saving_text(None) == "not known yet"


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
