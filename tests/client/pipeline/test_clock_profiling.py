"""The clock of each iteration of a profile, and its early end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import UsageError
from wattloop.pipeline.clock_profiling import ClockResult, Profiling, clocks_left, spaced_clocks
from wattloop.pipeline.plan_messages import PROFILE, Directive
from wattloop.pipeline.standard_errors import RegressionEstimate

CLOCKS = st.lists(st.integers(1, 3000), min_size=1, max_size=200, unique=True)


def profile_of(clocks: list[int], first: int, warm_up: int, per_clock: int) -> Directive:
    return Directive(
        mode=PROFILE,
        first_iteration=first,
        clocks_megahertz=tuple(clocks),
        warm_up_iterations=warm_up,
        iterations_per_clock=per_clock,
    )


def result(megahertz: int, joules: float, seconds: float, error: float = 1.0) -> ClockResult:
    return ClockResult(megahertz, RegressionEstimate(joules, error), seconds)


@given(
    clocks=st.lists(st.integers(1, 3000), min_size=1, max_size=20, unique=True),
    first=st.integers(0, 50),
    warm_up=st.integers(0, 4),
    per_clock=st.integers(1, 5),
)
def test_each_clock_is_measured_as_often_as_told_after_its_warm_up(
    clocks: list[int], first: int, warm_up: int, per_clock: int
) -> None:
    profiling = Profiling(profile_of(clocks, first, warm_up, per_clock))
    end = first + len(clocks) * (warm_up + per_clock)
    held = [profiling.clock(iteration) for iteration in range(end + 3)]
    measured = [held[iteration] for iteration in range(end + 3) if profiling.is_measured(iteration)]
    assert held == [None] * first + [each for each in clocks for _ in range(warm_up + per_clock)] + [None] * 3
    assert measured == [each for each in clocks for _ in range(per_clock)]
    assert [profiling.is_finished(iteration) for iteration in (end - 1, end)] == [False, True]


@given(table=CLOCKS, count=st.integers(2, 40))
def test_spaced_clocks_are_of_the_table_in_falling_order_with_both_ends(table: list[int], count: int) -> None:
    found = spaced_clocks(table, count)
    assert len(found) == min(count, len(table))
    assert list(found) == sorted(set(found) & set(table), reverse=True)
    assert (found[0], found[-1]) == (max(table), min(table))


@pytest.mark.parametrize(("table", "count"), [((), 5), ((1410,), 1)])
def test_clocks_of_an_empty_table_or_a_count_below_two_are_refused(table: tuple[int, ...], count: int) -> None:
    with pytest.raises(UsageError, match="expected at least 1 clock and a count of 2"):
        spaced_clocks(table, count)


def test_a_profile_resumes_with_the_clocks_that_lack_an_instruction() -> None:
    instructions = {("forward", 1), ("backward", 1)}
    measured = {1410: instructions, 1200: {("forward", 1)}, 600: instructions}
    assert clocks_left((1410, 1200, 990, 600), instructions, measured) == (1200, 990)
    assert clocks_left((1410,), instructions, measured) == ()


# Energy and time by clock, the blocking power, and the clock at which the rank stops.
SERIES: dict[str, tuple[dict[int, tuple[float, float]], RegressionEstimate | None, int | None]] = {
    "energy that falls": ({1400: (100, 1.0), 1200: (90, 1.1), 1000: (80, 1.3)}, None, None),
    "energy that rises": ({1400: (100, 1.0), 1200: (90, 1.1), 1000: (95, 1.3)}, None, 1000),
    "a rise within the error": ({1400: (100, 1.0), 1200: (90, 1.1), 1000: (91, 1.3)}, None, None),
    "energy that rises less than waiting costs": (
        {1400: (100, 1.0), 1200: (90, 1.1), 1000: (95, 1.3)},
        RegressionEstimate(60.0, 1.0),
        None,
    ),
    "a rise that may be the error of the blocking power": (
        {1400: (100, 1.0), 1200: (90, 1.1), 1000: (105, 1.3)},
        RegressionEstimate(60.0, 30.0),
        None,
    ),
    "effective energy that rises": (
        {1400: (100, 1.0), 1200: (90, 1.1), 1000: (120, 1.3)},
        RegressionEstimate(60.0, 1.0),
        1000,
    ),
    "the highest clock as the best": ({1400: (100, 1.0), 1200: (110, 1.1)}, None, 1200),
}


@pytest.mark.parametrize(("series", "blocking", "stops"), SERIES.values(), ids=SERIES)
def test_a_rank_stops_where_effective_energy_has_risen_beyond_its_error(
    series: dict[int, tuple[float, float]], blocking: RegressionEstimate | None, stops: int | None
) -> None:
    profiling = Profiling(profile_of([*series, 800, 600], 0, 1, 1))
    for clock, (joules, seconds) in series.items():
        assert not profiling.stopped
        profiling.add(result(clock, joules, seconds), blocking)
    assert (f"at {stops} MHz" in profiling.stopped) == (stops is not None)
    # The others go on, so this rank holds its highest clock until the end.
    assert profiling.clock(7) == (1400 if stops else 800)
    assert profiling.is_measured(7) == (stops is None)
    assert profiling.is_finished(7) == (stops is not None)
    assert profiling.clock(10_000) is None
