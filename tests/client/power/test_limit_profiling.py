"""Power limits are measured during training: each once, from the maximum, in long enough windows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.power.limit_profiling import MAX_LIMITS, LimitProfiling, limits_to_measure
from wattloop.power.windows import MIN_WINDOW_SECONDS, Totals, WindowRecorder

RANGES = st.tuples(st.integers(50, 400), st.integers(0, 800)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@dataclass
class Training:
    """A training under measurement: a step takes time and energy according to the limit held."""

    profiling: LimitProfiling
    seconds_per_sample: float
    joules_per_sample: float = 2.0
    time_seconds: float = 1000.0
    energy_joules: float = 5e6
    reads: int = 0
    steps: int = 0
    held: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held.append(self.profiling.limit_watts)

    def step(self, samples: float) -> None:
        self.steps += 1
        # Half the limit takes twice the time and half the energy, so that each window is distinguishable.
        limit = self.held[-1]
        self.time_seconds += samples * self.seconds_per_sample * 400 / limit
        self.energy_joules += samples * self.joules_per_sample * limit / 400
        if self.profiling.step_done(samples):
            self.reads += 1
            self.profiling.add_totals(Totals(self.energy_joules, self.time_seconds))
            if self.profiling.limit_watts != self.held[-1]:
                self.held.append(self.profiling.limit_watts)


@given(RANGES)
def test_limits_descend_from_the_maximum_in_equal_steps_within_the_range(bounds: tuple[int, int]) -> None:
    lowest, highest = bounds
    limits = limits_to_measure(lowest, highest)
    assert limits[0] == highest
    assert len(limits) <= MAX_LIMITS
    assert all(lowest <= limit <= highest for limit in limits)
    steps = {before - after for before, after in itertools.pairwise(limits)}
    assert len(steps) <= 1
    assert all(step % 25 == 0 for step in steps)


@settings(deadline=None, max_examples=40)
@given(
    RANGES,
    st.floats(0.01, 10.0),
    st.lists(st.integers(1, 64), min_size=1, max_size=8),
)
def test_every_limit_is_measured_once_in_a_long_enough_window(
    bounds: tuple[int, int], seconds_per_sample: float, batches: list[int]
) -> None:
    limits = limits_to_measure(*bounds)
    training = Training(LimitProfiling(limits), seconds_per_sample)
    while not training.profiling.finished:
        training.step(batches[training.steps % len(batches)])
    assert tuple(training.held) == limits
    measured = training.profiling.measurements(samples_per_epoch=1000.0)
    assert tuple(each.power_limit_watts for each in measured) == limits
    for each in measured:
        samples = each.epochs * 1000
        assert each.time_seconds >= MIN_WINDOW_SECONDS
        # Energy and time belong to the counted samples, without a step at another limit.
        assert each.time_seconds == pytest.approx(samples * seconds_per_sample * 400 / each.power_limit_watts)
        assert each.energy_joules == pytest.approx(samples * 2.0 * each.power_limit_watts / 400)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.001, 0.1))
def test_few_steps_read_the_counters(seconds_per_sample: float) -> None:
    training = Training(LimitProfiling((400.0, 300.0)), seconds_per_sample)
    while not training.profiling.finished:
        training.step(1)
    # One read per power of two of a window's steps, one at its start, and a few near its end.
    assert training.reads <= 2 * (training.steps.bit_length() + 8)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 3.0), st.sets(st.integers(1, 60), max_size=6))
def test_a_restarted_window_excludes_earlier_steps_at_any_step(
    seconds_per_sample: float, interruptions: set[int]
) -> None:
    training = Training(LimitProfiling((400.0, 300.0)), seconds_per_sample)
    while not training.profiling.finished:
        training.step(1)
        if training.steps in interruptions:
            # The limit was not held for a moment, so this energy and time belong to no limit.
            training.energy_joules += 1e6
            training.time_seconds += 100
            training.profiling.restart_window()
    for each in training.profiling.measurements(samples_per_epoch=1.0):
        assert each.time_seconds >= MIN_WINDOW_SECONDS
        assert each.time_seconds == pytest.approx(each.epochs * seconds_per_sample * 400 / each.power_limit_watts)
        assert each.energy_joules == pytest.approx(each.epochs * 2.0 * each.power_limit_watts / 400)


def test_a_window_continues_over_short_epochs() -> None:
    training = Training(LimitProfiling((400.0,)), seconds_per_sample=1.0)
    for _epoch in range(10):  # an epoch of two seconds
        training.step(1)
        training.step(1)
    (measured,) = training.profiling.measurements(samples_per_epoch=2.0)
    assert measured.epochs == pytest.approx(measured.time_seconds / 2)
    assert measured.epochs > 2


def test_a_window_does_not_end_while_the_clock_does_not_advance() -> None:
    profiling = LimitProfiling((400.0, 300.0))
    for _ in range(100):
        if profiling.step_done(8):
            profiling.add_totals(Totals(5.0, 7.0))
    assert not profiling.finished
    assert profiling.limit_watts == 400.0


def test_no_step_reads_the_counters_after_all_limits_are_measured() -> None:
    training = Training(LimitProfiling((400.0,)), seconds_per_sample=10.0)
    while not training.profiling.finished:
        training.step(1)
    reads = training.reads
    training.step(1)
    assert training.reads == reads
    assert training.profiling.limit_watts == 400.0


def test_a_restarted_window_excludes_energy_from_before() -> None:
    training = Training(LimitProfiling((400.0, 200.0)), seconds_per_sample=0.1)
    for _ in range(3):
        training.step(10)
    training.energy_joules += 1e6  # at an unknown limit, without an agent
    training.profiling.restart_window()
    while not training.profiling.finished:
        training.step(10)
    first, second = training.profiling.measurements(samples_per_epoch=100)
    assert first.energy_joules / first.epochs == pytest.approx(200.0)
    assert second.energy_joules / second.epochs == pytest.approx(100.0)


def test_a_pause_excludes_its_energy_and_time_from_the_window() -> None:
    recorder = WindowRecorder(300.0)
    energy, seconds, window = 0.0, 0.0, None
    for step in range(40):
        energy, seconds = energy + 200.0, seconds + 1.0
        if recorder.step_done(8):
            window = window or recorder.add_totals(Totals(energy, seconds))
        if step == 2:
            recorder.pause(Totals(energy, seconds))
            energy, seconds = energy + 1e6, seconds + 1e3  # an evaluation
            recorder.resume(Totals(energy, seconds))
    assert window is not None
    assert window.energy_joules == pytest.approx(200.0 * window.time_seconds)
    assert window.samples == pytest.approx(8 * window.time_seconds)
    assert window.end.time_seconds - window.start.time_seconds == pytest.approx(window.time_seconds + 1e3)


def test_steps_after_a_pause_that_was_not_resumed_begin_the_window_again() -> None:
    recorder = WindowRecorder(300.0)
    recorder.step_done(1)
    recorder.add_totals(Totals(0.0, 0.0))
    recorder.pause(Totals(0.0, 0.0))
    recorder.step_done(1)
    assert recorder.add_totals(Totals(1e6, 1e3)) is None
    assert not recorder.is_open
