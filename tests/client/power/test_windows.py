"""A window of a power limit: long enough, with few readings, and of its own steps alone."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.power.windows import MIN_WINDOW_SECONDS, PowerWindow, Totals, WindowRecorder


@dataclass
class Training:
    """A training under one limit: a step takes time and energy by its samples."""

    recorder: WindowRecorder
    seconds_per_sample: float
    time_seconds: float = 1000.0
    energy_joules: float = 5e6
    reads: int = 0
    steps: int = 0

    def step(self, samples: float) -> PowerWindow | None:
        self.steps += 1
        self.time_seconds += samples * self.seconds_per_sample
        self.energy_joules += 2.0 * samples
        if not self.recorder.step_done(samples):
            return None
        self.reads += 1
        return self.recorder.add_totals(Totals(self.energy_joules, self.time_seconds))


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 10.0), st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_a_window_is_long_enough_and_has_the_energy_and_time_of_its_samples(
    seconds_per_sample: float, batches: list[int]
) -> None:
    training = Training(WindowRecorder(300.0), seconds_per_sample)
    while (window := training.step(batches[training.steps % len(batches)])) is None:
        pass
    assert window.power_limit_watts == 300.0
    assert window.time_seconds >= MIN_WINDOW_SECONDS
    assert window.time_seconds == pytest.approx(window.samples * seconds_per_sample)
    assert window.energy_joules == pytest.approx(2.0 * window.samples)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.001, 0.1))
def test_few_steps_read_the_counters(seconds_per_sample: float) -> None:
    training = Training(WindowRecorder(300.0), seconds_per_sample)
    while training.step(1) is None:
        pass
    # One read per power of two of the window's steps, one at its start, and a few near its end.
    assert training.reads <= training.steps.bit_length() + 8


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 3.0), st.sets(st.integers(1, 60), max_size=6))
def test_a_restarted_window_excludes_earlier_steps_at_any_step(
    seconds_per_sample: float, interruptions: set[int]
) -> None:
    training = Training(WindowRecorder(300.0), seconds_per_sample)
    while (window := training.step(1)) is None:
        if training.steps in interruptions:
            # The limit was not held for a moment, so this energy and time belong to no limit.
            training.energy_joules += 1e6
            training.time_seconds += 100
            training.recorder.restart()
    assert window.time_seconds >= MIN_WINDOW_SECONDS
    assert window.time_seconds == pytest.approx(window.samples * seconds_per_sample)
    assert window.energy_joules == pytest.approx(2.0 * window.samples)


def test_a_window_does_not_end_while_the_clock_does_not_advance() -> None:
    recorder = WindowRecorder(400.0)
    for _ in range(100):
        if recorder.step_done(8):
            assert recorder.add_totals(Totals(5.0, 7.0)) is None


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
