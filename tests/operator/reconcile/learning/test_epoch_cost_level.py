"""Data that grow: the default configuration is compared at what its epochs would cost at each recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from wattloop_operator.history.cost_history import saving_sentence
from wattloop_operator.history.rows import rows_of
from wattloop_operator.plots.cost_plot import cost_svg
from wattloop_operator.plots.figure_style import LIGHT
from wattloop_operator.reconcile.learning.epoch_cost_level import EpochCostLevels

Make = Callable[..., Any]
# An epoch of batch size 32 takes 100 s and one of 64 takes 50 s, as the data are at first.
SECONDS = {32: 100.0, 64: 50.0, 128: 60.0}
EPOCHS = 10
GROWTH = 1.3


def attempts(record: Make, sizes: Sequence[int], factors: Sequence[float]) -> list[Any]:
    """One attempt a recurrence, whose epochs take a multiple of the usual time at 200 W."""
    found = []
    for index, (size, factor) in enumerate(zip(sizes, factors, strict=True)):
        seconds = SECONDS[size] * factor
        kind = "Default" if size == 32 else "Trial" if size not in sizes[:index] else "Incumbent"
        found.append(
            record(
                index,
                batch_size=size,
                decision_kind=kind,
                epochs=float(EPOCHS),
                epoch_energy_joules=200 * seconds,
                epoch_time_seconds=seconds,
                energy_joules=200 * seconds * EPOCHS,
                time_seconds=seconds * EPOCHS,
            )
        )
    return found


@pytest.mark.parametrize("nights", [4, 12])
@pytest.mark.parametrize("growth", [GROWTH, 1 / GROWTH])
def test_a_default_that_ran_once_costs_more_as_the_data_grow(
    history: Make, record: Make, nights: int, growth: float
) -> None:
    """It was said to be 999 % cheaper than runs of which each cost half of what the default would have."""
    sizes = [32, 128, *[64] * nights]
    shown = history(*attempts(record, sizes, [growth**night for night in range(len(sizes))]))
    defaults = [row.default_cost_joules for row in rows_of(shown)]
    assert defaults[0] is not None
    assert defaults == pytest.approx([defaults[0] * growth**night for night in range(len(sizes))])
    assert [row.saving_percent for row in rows_of(shown)] == pytest.approx([None, 40.0, *[50.0] * nights])
    latest, default = shown.savings.latest_percent, shown.savings.default
    assert latest is not None
    assert default is not None
    assert (latest.value, default.value) == pytest.approx((50.0, defaults[-1]))
    assert 30 < latest.low < 50 < latest.high < 70
    assert "50 % less" in saving_sentence(shown)


def test_costs_that_vary_from_run_to_run_are_no_change(record: Make) -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        factors = np.exp(0.05 * generator.standard_normal(40)).tolist()
        assert not EpochCostLevels(attempts(record, [32, 128, *[64] * 38], factors), 0.5).changes


@pytest.mark.parametrize("spike", [3, 5, 6])
def test_one_expensive_attempt_makes_no_default_more_expensive(record: Make, spike: int) -> None:
    factors = [1.0] * 7
    factors[spike] = 2.0
    assert not EpochCostLevels(attempts(record, [32, *[64] * 6], factors), 0.5).changes


def test_a_lasting_change_counts_from_its_first_attempt_on(record: Make) -> None:
    known = attempts(record, [32, *[64] * 6], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    levels = EpochCostLevels(known, 0.5)
    assert levels.now == pytest.approx(math.log(2))
    assert [levels.factor(each.order) for each in known] == pytest.approx([2.0] * 4 + [1.0] * 3)


def test_attempts_that_do_not_show_their_epochs_have_the_level_before_them(record: Make) -> None:
    known = attempts(record, [32, *[64] * 6], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    hidden = {"batch_size": 64, "decision_kind": "Incumbent", "epoch_energy_joules": None, "epoch_time_seconds": None}
    unknown = [record(index, **hidden) for index in (7, 8)]
    assert EpochCostLevels([*known, *unknown], 0.5).factor((8, 0)) == 1.0
    assert not EpochCostLevels(unknown, 0.5).changes
    assert EpochCostLevels([], 0.5).factor((0, 0)) == 1.0


def test_the_plot_says_that_the_default_costs_what_it_would_now(history: Make, record: Make) -> None:
    sizes = [32, 128, 64, 64, 64]
    steady, grown = (
        cost_svg(history(*attempts(record, sizes, [growth**night for night in range(5)])), LIGHT)
        for growth in (1.0, GROWTH)
    )
    assert b"default configuration" in steady
    assert b"now " not in steady
    assert b"now " in grown
