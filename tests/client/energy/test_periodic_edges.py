"""The period of a counter's steps, compared with all pairs of their bounds."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.energy.periodic_edges import edge_times

WIDTHS = st.lists(st.floats(1e-4, 0.03), min_size=24, max_size=120)


@settings(max_examples=60, deadline=None)
@given(before=WIDTHS, after=WIDTHS, period=st.floats(0.08, 0.12))
def test_the_periods_that_fit_are_those_that_every_pair_of_bounds_allows(
    before: list[float], after: list[float], period: float
) -> None:
    bounds = [
        (number * period - early, number * period + late)
        for number, (early, late) in enumerate(zip(before, after, strict=False))
    ]
    found = edge_times(bounds)
    pairs = list(itertools.combinations(enumerate(bounds), 2))
    shortest = max((later[0] - sooner[1]) / (n - m) for (m, sooner), (n, later) in pairs)
    longest = min((later[1] - sooner[0]) / (n - m) for (m, sooner), (n, later) in pairs)
    assert found.period_seconds == pytest.approx((shortest + longest) / 2, abs=1e-9)
    assert found.period_half_width_seconds == pytest.approx((longest - shortest) / 2, abs=1e-9)
    for time, (earliest, latest) in zip(found.times_seconds, bounds, strict=True):
        assert earliest - 1e-9 <= time <= latest + 1e-9
