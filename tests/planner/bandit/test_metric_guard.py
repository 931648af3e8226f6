"""The metric guard: which arms end with a worse metric than the default, and how often that is an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.metric_guard import ERROR_RATE, WINDOW, GuardResult, guard_result

DEFAULT, OTHERS = 64, (16, 32, 128)
# Multiples of 1/64, so that scaling by powers of two is exact.
METRICS = st.integers(-640, 640).map(lambda value: value / 64)
FINALS = st.lists(st.tuples(st.sampled_from((DEFAULT, *OTHERS)), METRICS), max_size=40)
MARGINS = st.integers(0, 64).map(lambda value: value / 64)


def result_of(finals: list[tuple[int, float]], margin: float = 1.0, *, maximize: bool = True) -> GuardResult[int]:
    return guard_result(finals, DEFAULT, margin=margin, maximize=maximize)


def runs(size: int, *metrics: float) -> list[tuple[int, float]]:
    return [(size, metric) for metric in metrics]


@pytest.mark.parametrize(
    ("default", "other", "short"),
    [
        ((95.0, 96.0), (90.0, 91.0, 90.5), True),
        ((95.0, 96.0), (94.0, 95.0, 94.5), False),
        ((95.0, 96.0), (99.0, 99.5, 99.2), False),
        ((95.0, 96.0), (90.0, 91.0), False),
        ((95.0,), (90.0, 91.0, 90.5), False),
        ((), (90.0, 91.0, 90.5), False),
        # The difference is as large as the spread.
        ((95.0, 85.0), (90.0, 80.0, 85.0), False),
        # Without spread, a mean exactly at the margin is within it.
        ((95.0, 95.0), (94.0, 94.0, 94.0), False),
        ((95.0, 95.0), (93.5, 93.5, 93.5), True),
    ],
)
def test_an_arm_falls_short_if_enough_runs_show_that_it_is_worse_by_more_than_the_margin(
    default: tuple[float, ...], other: tuple[float, ...], short: bool
) -> None:
    assert (32 in result_of(runs(DEFAULT, *default) + runs(32, *other)).short) == short
    assert (32 in result_of(runs(32, *other) + runs(DEFAULT, *default)).short) == short


def test_a_rounding_error_of_the_margin_is_no_shortfall() -> None:
    assert 0.95 - 0.9 != 0.05
    finals = runs(DEFAULT, 0.1 + 0.2, 0.1 + 0.2) + runs(32, 0.25, 0.25, 0.25)
    assert not result_of(finals, margin=0.05).short


def test_the_comparison_uses_the_latest_runs() -> None:
    finals = runs(DEFAULT, *(95.0 + 0.1 * (each % 3) for each in range(WINDOW)))
    finals += runs(
        32, *(95.0 + 0.1 * (each % 3) for each in range(30)), *(80.0 + 0.1 * (each % 3) for each in range(20))
    )
    result = result_of(finals)
    assert result.short[32].runs == WINDOW
    assert result.short[32].mean < 95
    assert (result.default_runs, result.runs, result.comparable) == (WINDOW, {32: 50}, {32})


def test_an_arm_that_seems_worse_by_more_than_the_margin_is_suspected() -> None:
    noisy = runs(DEFAULT, 95.0, 85.0) + runs(16, 90.0, 80.0, 84.0) + runs(32, 90.0, 92.0, 89.5) + runs(128, 50.0)
    assert (result_of(noisy).short, result_of(noisy).suspected) == ({}, {16})
    certain = runs(DEFAULT, 95.0, 96.0) + runs(16, 90.0, 91.0, 90.5)
    assert (result_of(certain).short.keys(), result_of(certain).suspected) == ({16}, set())


@given(FINALS, MARGINS)
def test_minimizing_is_maximizing_the_negative(finals: list[tuple[int, float]], margin: float) -> None:
    negative = [(size, -metric) for size, metric in finals]
    minimized = result_of(negative, margin, maximize=False).short
    maximized = result_of(finals, margin).short
    assert {size: -each.mean for size, each in minimized.items()} == {s: each.mean for s, each in maximized.items()}


@given(FINALS, MARGINS)
def test_arms_are_judged_independently_of_each_other(finals: list[tuple[int, float]], margin: float) -> None:
    short = result_of(finals, margin).short
    for size in OTHERS:
        alone = result_of([each for each in finals if each[0] in (DEFAULT, size)], margin).short
        assert alone.get(size) == short.get(size)


@given(FINALS, FINALS, MARGINS)
def test_a_verdict_is_final_and_never_about_the_default(
    finals: list[tuple[int, float]], later: list[tuple[int, float]], margin: float
) -> None:
    short = result_of(finals, margin).short
    assert short.items() <= result_of(finals + later, margin).short.items()
    assert DEFAULT not in result_of(finals + later, margin).short


@given(FINALS, MARGINS, MARGINS)
@settings(max_examples=200)
def test_a_larger_margin_excludes_no_more_arms(finals: list[tuple[int, float]], one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert result_of(finals, larger).short.keys() <= result_of(finals, smaller).short.keys()


def share_excluded(shortfall: float, jobs: int = 1500, *, default_runs: int = 2) -> float:
    """Share of jobs that exclude an arm whose mean is lower by this many standard deviations; the margin is one."""
    generator = np.random.default_rng(5)
    excluded = 0
    for _ in range(jobs):
        finals = runs(DEFAULT, *generator.normal(0.0, 1.0, default_runs))
        finals += runs(32, *generator.normal(-shortfall, 1.0, 40))
        excluded += 32 in result_of(finals).short
    return excluded / jobs


def test_an_arm_at_the_margin_is_excluded_with_at_most_the_stated_probability() -> None:
    """The limit of the error: over 40 runs, with two runs of the default and with ten."""
    assert share_excluded(1.0) <= ERROR_RATE
    assert share_excluded(1.0, default_runs=10) <= ERROR_RATE
    assert share_excluded(0.0) <= ERROR_RATE / 5


def test_an_arm_that_is_far_worse_is_excluded() -> None:
    assert share_excluded(6.0, 300) >= 0.98
