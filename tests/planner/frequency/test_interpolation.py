"""Interpolated clocks: between measured ones, within their stated error, and left out where that is too large."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import MEASURED, measured_file
from wattloop_planner.frequency.pipeline.clock_interpolation import MAX_RELATIVE_ERROR, clocks_between, interpolated
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, Profile, profile_of
from wattloop_planner.frequency.pipeline.profile_file import read_profile

KIND = (0, "forward")


def profile(*options: Option) -> Profile:
    return profile_of("example", {KIND: options})


@given(
    waits=st.floats(0.001, 1.0),
    computes=st.floats(1.0, 1000.0),
    static=st.floats(10.0, 200.0),
    dynamic=st.floats(1e-8, 2e-7),
    step=st.integers(20, 150),
)
def test_the_time_and_energy_of_a_smooth_instruction_are_within_the_stated_error(
    waits: float, computes: float, static: float, dynamic: float, step: int
) -> None:
    def at(clock: int) -> Option:
        time = waits + computes / clock
        return Option(clock, time, time * (static + dynamic * clock**3), 0, (), 0.0, 0.0)

    measured = [at(clock) for clock in range(1410, 600, -step)]
    found = interpolated(profile(*measured), range(600, 1411, 15), max_relative_error=1.0).options[KIND]
    for option in (option for option in found if option.interpolated):
        true = at(option.frequency_megahertz)
        assert abs(option.time_seconds - true.time_seconds) <= option.time_error_seconds + 1e-9 * true.time_seconds
        # The curvature inside an interval may exceed that of its neighbours by a little.
        error = 1.2 * option.energy_error_joules + 1e-9 * true.energy_joules
        assert abs(option.energy_joules - true.energy_joules) <= error


@given(
    clocks=st.lists(st.integers(600, 1410), min_size=1, max_size=6, unique=True),
    wanted=st.lists(st.integers(500, 1500), max_size=8),
)
def test_measured_options_remain_and_nothing_is_extrapolated(clocks: list[int], wanted: list[int]) -> None:
    before = profile(*(Option(clock, 0.1 + 100 / clock, 0.02 * clock) for clock in clocks))
    after = interpolated(before, wanted)
    assert [option for option in after.options[KIND] if not option.interpolated] == list(before.options[KIND])
    added = {option.frequency_megahertz for option in after.options[KIND]} - set(clocks)
    assert added <= {clock for clock in wanted if min(clocks) < clock < max(clocks)}
    if len(clocks) < 3:
        assert not added


def test_an_uncertain_clock_is_left_out_and_the_note_says_so() -> None:
    # A step between 1200 and 1100 MHz, as when memory clocks change with the graphics clock.
    clocks = (1410, 1300, 1200, 1100, 1000)
    steep = profile(*(Option(clock, 0.1 if clock > 1150 else 0.2, 30.0, 0, (), 1e-4, 0.03) for clock in clocks))
    found = interpolated(steep, [1355, 1150])
    assert [option.frequency_megahertz for option in found.options[KIND] if option.interpolated] == [1355]
    left_out = [note for note in found.notes if "were not interpolated" in note]
    assert len(left_out) == 1
    assert "(1150 MHz) and may be at most 1.00%" in left_out[0]


def test_knobs_are_interpolated_apart() -> None:
    options = [
        Option(clock, factor * (0.1 + 100 / clock), 30.0, 0, (knob,))
        for clock in (1410, 1200, 1000)
        for knob, factor in (("10", 1.0), ("20", 1.5))
    ]
    found = interpolated(profile_of("example", {KIND: options}, (), ("sm",)), [1300]).options[KIND]
    times = {option.knobs: option.time_seconds for option in found if option.interpolated}
    assert times["20",] == pytest.approx(1.5 * times["10",])


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_half_of_the_clocks_of_a_published_profile_predict_the_other_half(name: str) -> None:
    complete = read_profile(measured_file(name))
    misses, total = 0, 0
    for key, options in complete.options.items():
        kept = profile_of("half", {key: options[::2]})
        true = {option.frequency_megahertz: option for option in options}
        for option in interpolated(kept, true).options[key]:
            if not option.interpolated:
                continue
            total += 1
            error = abs(option.energy_joules - true[option.frequency_megahertz].energy_joules)
            misses += error > 3 * option.energy_error_joules
            assert option.energy_error_joules / option.energy_joules <= MAX_RELATIVE_ERROR
    assert total > 20
    assert misses <= 0.05 * total


def test_clocks_between_start_at_the_highest_measured_clock() -> None:
    found = clocks_between(profile(Option(1410, 0.1, 30.0), Option(1370, 0.11, 29.0)), 15)
    assert found == [1410, 1395, 1380]
