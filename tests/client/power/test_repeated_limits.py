"""A run measures each power limit once and uncertain ones again, in a bounded time."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.power.selectors import Cost, Energy, MeasuredLimit, Selector, Time
from wattloop.power.sequential_design import SequentialDesign
from wattloop.power.windows import MIN_WINDOW_SECONDS, Totals
from wattloop.run.limit_choice import MAX_WINDOWS_PER_LIMIT
from wattloop.wire.training_messages import LimitMeasurement

LIMITS = (400.0, 350.0, 300.0, 250.0, 200.0)


def design(selector: Selector, passes: int = MAX_WINDOWS_PER_LIMIT) -> SequentialDesign:
    return SequentialDesign(LIMITS, 1, selector, max_windows=passes * len(LIMITS))


@dataclass
class Training:
    """Steps of one sample, with energy and time by the limit held and noise."""

    profiling: SequentialDesign
    seed: int
    noise: float
    energy_joules: float = 5e6
    time_seconds: float = 100.0
    held: Counter[float] = field(default_factory=Counter)
    reads: int = 0

    def __post_init__(self) -> None:
        self._noise = random.Random(self.seed)

    def step(self) -> None:
        true = truth(self.profiling.limit_watts)
        self.held[self.profiling.limit_watts] += 1
        self.energy_joules += true.energy_joules * math.exp(self._noise.gauss(0.0, self.noise))
        self.time_seconds += true.time_seconds * math.exp(self._noise.gauss(0.0, self.noise))
        if self.profiling.step_done(1.0):
            self.reads += 1
            self.profiling.add_totals(Totals(self.energy_joules, self.time_seconds))

    def carry_out(self) -> tuple[LimitMeasurement, ...]:
        while not self.profiling.finished:
            self.step()
        return self.profiling.measurements(1.0)


def truth(watts: float) -> MeasuredLimit:
    """Of a GPU that draws its limit: the best energy is at 250 W, and 300 W are worse by 1 %."""
    seconds = (400 / watts) ** 0.8 * (1 + 0.5 * (200 / watts) ** 6)
    return MeasuredLimit(watts, watts * seconds, seconds)


def measured(found: tuple[LimitMeasurement, ...]) -> list[MeasuredLimit]:
    return [
        MeasuredLimit(each.power_limit_watts, each.energy_joules / each.epochs, each.time_seconds / each.epochs)
        for each in found
    ]


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([Energy(), Time(), Cost(0.5)]), st.integers(0, 1000), st.sampled_from([0.0, 0.02, 0.1]))
def test_every_limit_is_measured_and_the_windows_are_at_most_twice_as_many(
    selector: Selector, seed: int, noise: float
) -> None:
    training = Training(design(selector), seed, noise)
    found = training.carry_out()
    assert [each.power_limit_watts for each in found] == list(LIMITS)
    assert all(each.time_seconds >= 0.9 * MIN_WINDOW_SECONDS for each in found)
    # Each window has a step of warm-up, and one step too many at most.
    longest = MIN_WINDOW_SECONDS + 4 * truth(LIMITS[-1]).time_seconds
    begun = MAX_WINDOWS_PER_LIMIT * len(LIMITS)
    assert training.time_seconds - 100.0 <= begun * longest * (1 + 5 * noise)


def test_without_noise_each_measurement_is_exact_within_the_doubt_about_the_temperature() -> None:
    found = measured(Training(design(Energy()), 0, 0.0).carry_out())
    for each in found:
        true = truth(each.power_limit_watts)
        assert each.energy_joules == pytest.approx(true.energy_joules, rel=0.01)
        assert each.time_seconds == pytest.approx(true.time_seconds, rel=0.01)


def test_measurements_before_the_first_pass_is_complete_are_those_of_the_windows() -> None:
    training = Training(design(Energy()), 0, 0.0)
    while len(found := training.profiling.measurements(1.0)) < 3:
        training.step()
    # High and low limits alternate.
    assert [each.power_limit_watts for each in found] == [400.0, 300.0, 200.0]
    for each in measured(found):
        true = truth(each.power_limit_watts)
        assert each.energy_joules == pytest.approx(true.energy_joules)
        assert each.time_seconds == pytest.approx(true.time_seconds)
    assert not training.profiling.finished


def test_the_end_of_an_epoch_ends_the_repetitions_but_not_the_first_pass() -> None:
    training = Training(design(Energy()), 3, 0.1)
    training.step()
    training.profiling.max_windows = len(LIMITS)
    assert len(training.carry_out()) == len(LIMITS)
    steps = {limit: math.ceil(MIN_WINDOW_SECONDS / truth(limit).time_seconds) for limit in LIMITS}
    # Once: a window, its warm-up, and the noise of its length.
    assert all(training.held[limit] <= 1.6 * steps[limit] + 4 for limit in LIMITS)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_rank_that_measures_for_itself_measures_each_limit_once(noise: float) -> None:
    training = Training(design(Energy(), passes=1), 3, noise)
    found = measured(training.carry_out())
    assert [each.power_limit_watts for each in found] == list(LIMITS)
    steps = {limit: math.ceil(MIN_WINDOW_SECONDS / truth(limit).time_seconds) for limit in LIMITS}
    assert all(training.held[limit] <= 1.6 * steps[limit] + 4 for limit in LIMITS)
    for each in found:
        assert each.energy_joules == pytest.approx(truth(each.power_limit_watts).energy_joules, rel=0.01 + noise)
