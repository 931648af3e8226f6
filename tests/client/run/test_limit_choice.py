"""A run measures power limits while it trains, and its training goes on whatever the measurement meets."""

from __future__ import annotations

import itertools

import pytest

from wattloop.power.windows import Totals
from wattloop.run.held_gpus import ProcessGpus
from wattloop.run.limit_choice import LimitChoice
from wattloop.wire.environment import RunEnvironment


class StuckGpus(ProcessGpus):
    """GPUs whose energy counter stands still while the clock goes on."""

    def __init__(self) -> None:
        super().__init__("")
        self.highest_watts, self.allowed_watts = 400.0, (200.0, 400.0)
        self.held: list[float] = []
        self._seconds = itertools.count()

    def totals(self) -> Totals:
        return Totals(7.0, float(next(self._seconds)))

    def hold(self, watts: float) -> None:
        self.held.append(watts)


def test_a_counter_that_stands_still_ends_the_measurement_and_not_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus = StuckGpus()
    choice = LimitChoice(RunEnvironment(), gpus, None)
    choice.begin()
    for _ in range(1000):
        choice.step_done(1.0)
    choice.epoch_ended()
    assert [record.message for record in caplog.records] == ["power limits are no longer measured: math domain error"]
    # All limits were measured, and no measurement of energy 0 is reported, which the operator would refuse.
    assert (len(set(gpus.held)), gpus.held[-1]) == (9, 400.0)
    assert choice.measurements(100.0) == ()
