"""Profiles from the measurements of several ranks: weights, disagreement, and CSV files with ranks."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtri

from wattloop.errors import InputError
from wattloop_planner.frequency import (
    OneForwardOneBackward,
    Option,
    evaluate,
    pipeline_problem,
    plan_frequencies,
    plan_pipeline,
    schedule_graph,
)
from wattloop_planner.frequency.pipeline.merged_profiles import (
    ClockMeasurement,
    merged_profile,
    weighted_mean,
    with_estimated_energy,
)
from wattloop_planner.frequency.pipeline.profile_file import read_profile

HEADER = "stage,instruction,frequency,time,energy,rank,time_error,energy_error\n"


def measured(rank: str, time: float, energy: float | None, error: float | None = None) -> ClockMeasurement:
    """A measurement of the forward of stage 0 at 1410 MHz; the error is relative."""
    errors = (None, None) if error is None else (error * time, error * (energy or 0.0))
    return ClockMeasurement(rank, 0, "forward", 1410, time, energy, *errors)


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(1e-4, 0.1)), min_size=1, max_size=8), st.floats(0.1, 1e3))
def test_the_mean_is_between_the_values_and_scales_with_the_unit(
    found: list[tuple[float, float]], scale: float
) -> None:
    values, errors = [value for value, _ in found], [error for _, error in found]
    mean = weighted_mean(values, errors)
    assert min(values) * (1 - 1e-12) <= mean.mean <= max(values) * (1 + 1e-12)
    scaled = weighted_mean([scale * value for value in values], [scale * error for error in errors])
    assert scaled.mean == pytest.approx(scale * mean.mean)
    assert scaled.error == pytest.approx(scale * mean.error)


def test_agreeing_ranks_are_weighed_by_their_errors() -> None:
    values, errors = np.array([1.0, 1.002, 0.999]), np.array([0.001, 0.004, 0.002])
    mean = weighted_mean(values.tolist(), errors.tolist())
    weights = errors**-2.0
    assert mean.mean == pytest.approx(float(np.average(values, weights=weights)))
    assert mean.error == pytest.approx(float(weights.sum() ** -0.5))
    assert not mean.disagree


def test_ranks_that_differ_far_beyond_their_errors_count_alike() -> None:
    mean = weighted_mean([1.0, 1.1, 1.2], [1e-5, 1.1e-5, 1.2e-5])
    assert mean.disagree
    assert mean.mean == pytest.approx(1.1, rel=1e-3)
    # The standard error of the mean of three values with a standard deviation of 0.1.
    assert mean.error == pytest.approx(0.1 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("ranks", [2, 3, 8, 100])
def test_one_of_a_thousand_agreeing_sets_is_held_for_a_disagreement(ranks: int) -> None:
    # Values at the quantile of the chi-squared distribution: two values apart, all others at the mean.
    for factor, disagree in ((0.97, False), (1.03, True)):
        half = factor * math.sqrt(chdtri(ranks - 1, 1e-3) / 2)
        values = [1000 - half, 1000 + half, *([1000.0] * (ranks - 2))]
        assert weighted_mean(values, [1.0] * ranks).disagree == disagree


def test_ranks_of_a_stage_become_one_option_with_its_error_and_a_note_names_those_that_disagree() -> None:
    profile = merged_profile(
        "job", [measured("0", 0.100, 30.0, 0.001), measured("3", 0.110, 30.01, 0.001), measured("2", 0.105, None)]
    )
    (option,) = profile.options[0, "forward"]
    assert option.time_seconds == pytest.approx(0.105, rel=1e-3)
    assert option.energy_joules == pytest.approx(30.005)
    assert option.energy_error_joules == pytest.approx(30 * 0.001 / math.sqrt(2), rel=1e-3)
    assert profile.notes[0] == (
        "stage 0, forward: ranks disagree beyond their errors at 1410 MHz; at 1410 MHz time 0.1 s (rank 0) to 0.11 s "
        "(rank 3). Their mean is used, and the difference counts as an error"
    )


def test_an_option_without_a_known_energy_is_left_out_with_a_note() -> None:
    slow = ClockMeasurement("0", 0, "forward", 1200, 0.12, None)
    profile = merged_profile("job", [measured("0", 0.1, 30.0), slow])
    assert [option.frequency_megahertz for option in profile.options[0, "forward"]] == [1410]
    assert profile.notes[0] == "stage 0, forward: no energy is known at 1200 MHz, so options are left out"
    with pytest.raises(InputError, match="no energy of stage 0, forward, at 1200 MHz"):
        merged_profile("job", [slow])


def test_maximum_clocks_keep_their_measured_time_where_the_energy_of_the_highest_clock_is_not_known() -> None:
    """A plan that costs no time then costs none: the time of maximum clocks was that of the next lower clock."""
    seconds = {1410: 0.100, 1335: 0.1008, 1260: 0.1035, 1185: 0.108}
    watts = {1410: 400, 1335: 350, 1260: 310, 1185: 280}
    factors = {"forward": 1.0, "backward": 2.0}
    every = [
        ClockMeasurement(str(stage), stage, kind, clock, time, time * watts[clock])
        for stage, kind, clock in itertools.product(range(2), factors, seconds)
        for time in [factors[kind] * seconds[clock]]
    ]
    partly = [
        replace(each, energy_joules=None) if (each.instruction, each.frequency_megahertz) == ("forward", 1410) else each
        for each in every
    ]
    graph = schedule_graph(OneForwardOneBackward(2, 4))
    complete = pipeline_problem(graph, merged_profile("job", every), 60.0)
    exact = evaluate(complete, [[1410] * 8] * 2).time_seconds
    profile = merged_profile("job", partly)
    problem = pipeline_problem(graph, profile, 60.0)
    assert evaluate(problem, [[1410] * 8] * 2).time_seconds == pytest.approx(exact, rel=1e-12)
    fastest = plan_pipeline(problem).plans[-1]
    assert evaluate(complete, plan_frequencies(problem, fastest)).time_seconds == pytest.approx(exact, rel=1e-12)
    assert any("stage 0, forward: no energy is known at 1410 MHz; it is estimated" in each for each in profile.notes)


@given(st.floats(0.2, 3.0), st.floats(20.0, 150.0), st.integers(1, 3))
def test_an_estimated_energy_is_within_its_stated_interval_of_a_power_that_is_convex_in_the_clock(
    exponent: float, idle: float, unknown: int
) -> None:
    def option(clock: int) -> Option:
        return Option(clock, 100.0 / clock, (idle + 300 * (clock / 1410) ** exponent) * 100.0 / clock)

    clocks = range(1410, 1000, -75)
    known = [option(clock) for clock in clocks[unknown:]]
    exact = option(clocks[0])
    found = with_estimated_energy(replace(exact, energy_joules=0.0), known)
    assert found.time_seconds == exact.time_seconds
    assert abs(found.energy_joules - exact.energy_joules) <= 1.96 * found.energy_error_joules


def test_a_file_with_ranks_is_merged_and_the_order_of_its_rows_does_not_matter(tmp_path: Path) -> None:
    rows = ["0,forward,1410,0.1,30,0,0.001,0.3", "0,forward,1410,0.101,30.2,1,0.001,0.3", "0,forward,1395,0.11,,0,,"]
    more = "0,Forward,1395,0.11,29,1,,"
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, lines in zip(paths, ([*rows, more], [more, *rows[::-1]]), strict=True):
        path.write_text(HEADER + "\n".join(lines) + "\n")
    first, second = (read_profile(path).options[0, "forward"] for path in paths)
    for one, two in zip(first, second, strict=True):
        assert one.time_seconds == pytest.approx(two.time_seconds)
        assert one.energy_joules == pytest.approx(two.energy_joules)
    assert [option.frequency_megahertz for option in first] == [1410, 1395]
    assert first[0].time_seconds == pytest.approx(0.1005)
    assert first[1].energy_joules == pytest.approx(29.0)


def test_an_instruction_without_any_energy_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(HEADER + "0,forward,1410,0.1,30,0,,\n0,backward,1410,0.2,,0,,\n0,backward,1200,0.2,,0,,\n")
    message = (
        r"found no energy of stage 0, backward, at 2 clocks \(1200 to 1410 MHz\), expected an energy at one clock or "
        "more; measure longer"
    )
    with pytest.raises(InputError, match=message):
        read_profile(path)


def test_two_rows_of_one_rank_that_disagree_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(HEADER + "0,forward,1410,0.1,30,3,,\n0,forward,1410,0.1,31,3,,\n")
    with pytest.raises(InputError, match="line 3: found a second row of rank 3 for stage 0, forward, 1410 MHz that"):
        read_profile(path)
