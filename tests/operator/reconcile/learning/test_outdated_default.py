"""Data that grow: what the default configuration cost on the first of them says nothing of a saving of today."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattloop_operator.history.cost_history import OUTDATED, saving_sentence
from wattloop_operator.history.rows import rows_of
from wattloop_operator.reconcile.learning.costs import (
    comparable_default,
    first_comparable,
    is_default_outdated,
    known_epoch_costs,
)
from wattloop_planner.bandit.configuration import Configuration

Make = Callable[..., Any]
DEFAULT = Configuration(32)
# An epoch of batch size 32 takes 100 s and one of 64 takes 50 s, as the data are at first.
SECONDS = {32: 100.0, 64: 50.0, 128: 60.0}
EPOCHS = 10
GROWTH = 1.3
# Joules of runs, each on more data than the one before, and what a short epoch does not show.
GROWING = (81.0, 139.0, 238.0, 279.0, 382.0, 432.0, 530.0, 594.0)
HIDDEN: dict[str, Any] = {"epoch_energy_joules": None, "epoch_time_seconds": None}


def attempts(record: Make, sizes: Sequence[int], factors: Sequence[float], **changes: Any) -> list[Any]:
    """One attempt a recurrence, whose epochs take a multiple of the usual time at 200 W."""
    found = []
    for index, (size, factor) in enumerate(zip(sizes, factors, strict=True)):
        seconds = SECONDS[size] * factor
        kind = "Default" if size == 32 else "Trial" if size not in sizes[:index] else "Incumbent"
        values = {
            "batch_size": size,
            "decision_kind": kind,
            "epochs": float(EPOCHS),
            "epoch_energy_joules": 200 * seconds,
            "epoch_time_seconds": seconds,
            "energy_joules": 200 * seconds * EPOCHS,
            "time_seconds": seconds * EPOCHS,
        }
        found.append(record(index, **values | changes))
    return found


@pytest.mark.parametrize("nights", [3, 4, 5, 12])
@pytest.mark.parametrize("growth", [GROWTH, 1 / GROWTH])
def test_no_saving_is_stated_against_a_default_that_ran_before_the_data_grew(
    history: Make, record: Make, nights: int, growth: float
) -> None:
    """The default was said to be 999 % cheaper than runs of which each cost half of what it would have."""
    sizes = [32, 128, *[64] * nights]
    shown = history(*attempts(record, sizes, [growth**night for night in range(len(sizes))]))
    assert (shown.savings.default, shown.savings.outdated, shown.savings.saved) == (None, True, None)
    assert {row.cost_saving_percent for row in rows_of(shown)} == {None}
    assert saving_sentence(shown).endswith(f"What was saved is not known yet: {OUTDATED}.")


def test_a_default_that_runs_again_is_compared_again(history: Make, record: Make) -> None:
    sizes = [32, 128, *[64] * 5, 32, 64]
    shown = history(*attempts(record, sizes, [1.0, *[2.0 * GROWTH**night for night in range(6)], 8.0, 8.0]))
    assert not shown.savings.outdated
    assert shown.savings.default is not None


def outdated(known: Sequence[Any]) -> bool:
    return is_default_outdated(known_epoch_costs(known, DEFAULT, 0.5), DEFAULT)


def first_compared(known: Sequence[Any]) -> int:
    return first_comparable(known_epoch_costs(known, DEFAULT, 0.5), DEFAULT)


def test_costs_that_vary_from_run_to_run_are_no_change(record: Make) -> None:
    generator = np.random.default_rng(1)
    for length in (3, 5, 8, 40):
        for _ in range(20):
            factors = np.exp(0.05 * generator.standard_normal(length)).tolist()
            assert not outdated(attempts(record, [32, *[64] * (length - 1)], factors))


@pytest.mark.parametrize("spike", [1, 3, 6, 7])
def test_one_expensive_attempt_of_many_is_no_change(record: Make, spike: int) -> None:
    factors = [1.0] * 8
    factors[spike] = 2.0
    assert not outdated(attempts(record, [32, *[64] * 7], factors))


@pytest.mark.parametrize(
    "changes",
    [
        {"template_digest": "other"},
        {"power_limit_watts": 150.0},
        {"gpu_product": "other"},
        {"gpu_count": 2},
        {"parameters": (("rate", "0.1"),)},
    ],
)
def test_another_training_or_another_gpu_is_no_change_of_the_data(record: Make, changes: dict[str, Any]) -> None:
    before = attempts(record, [32, *[64] * 6], [1.0] * 7)
    assert not outdated([*before, *attempts(record, [64] * 6, [3.0] * 6, **changes)])


def test_attempts_that_do_not_show_their_epochs_tell_nothing(record: Make) -> None:
    assert not outdated(attempts(record, [32, *[64] * 6], [2.0**night for night in range(7)], **HIDDEN))
    assert not outdated([])


@pytest.mark.parametrize(
    ("factors", "since"),
    [
        (GROWING[:1], 0),
        # One run is no proof of a change, but the mean of both is what the default costs on neither data.
        (GROWING[:2], None),
        (GROWING[:3], 2),
        (GROWING[:4], 2),
        (GROWING, 4),
        # The first run filled caches.
        ((200.0, 100.0), 0),
        ((200.0, 100.0, 100.0, 105.0, 95.0), 0),
        ((100.0, 98.0, 300.0, 102.0, 97.0), 0),
    ],
)
def test_a_default_whose_short_runs_cost_ever_more_is_expected_to_cost_what_the_latest_do(
    history: Make, record: Make, factors: tuple[float, ...], since: int | None
) -> None:
    """Runs of 81 to 594 J were followed by "is expected to use 342 J"."""
    shown = history(*attempts(record, [32] * len(factors), factors, **HIDDEN)).energy_savings
    if since is None:
        assert (shown.default, shown.outdated) == (None, True)
        return
    assert (shown.since, shown.outdated) == (since, False)
    latest = factors[since:]
    mean = 200 * SECONDS[32] * EPOCHS * sum(latest) / len(latest)
    assert shown.default.of_run.value == pytest.approx(mean)


def test_whole_runs_of_other_lengths_say_nothing_of_an_epoch(record: Make) -> None:
    runs = attempts(record, [32] * 6, [1.0, 1.0, 1.0, 3.0, 3.0, 3.0], **HIDDEN)
    assert first_compared(runs) == 3
    assert first_compared([replace(each, epochs=1.0 + each.recurrence) for each in runs]) == 0


@pytest.mark.parametrize("again", [1, 2, 4])
def test_a_default_that_runs_again_on_other_data_says_nothing_of_the_recurrences_before(
    history: Make, record: Make, again: int
) -> None:
    """A run that cost as much as the default of its night was said to have saved 50 %."""
    sizes = [32, 64, 128, 64, *[32] * again, 64]
    shown = history(*attempts(record, sizes, [1.0] * 4 + [2.5] * (again + 1)))
    assert shown.savings.since == 4
    assert [row.cost_saving_percent is None for row in rows_of(shown)] == [True] * (4 + again) + [False]
    last = rows_of(shown)[-1].cost_saving_percent
    assert last.value == pytest.approx(50)
    assert {row.default_cost_joules for row in rows_of(shown)[:4]} == {None}
    assert "In all since run 4 (before, an epoch cost another amount), learning" in saving_sentence(shown)


def test_a_default_that_varies_from_run_to_run_is_compared_with_all_recurrences(record: Make) -> None:
    generator = np.random.default_rng(1)
    for length in (2, 3, 5, 8, 40):
        for _ in range(20):
            factors = np.exp(0.05 * generator.standard_normal(length)).tolist()
            assert first_compared(attempts(record, [32] * length, factors)) == 0
    for spike in range(1, 8):
        factors = [2.0 if each == spike else 1.0 for each in range(8)]
        assert first_compared(attempts(record, [32] * 8, factors)) == 0
    assert first_compared([]) == 0


def test_other_configurations_show_a_change_that_the_default_does_not(record: Make) -> None:
    """The first attempt of the default measured power limits in all of its epochs."""
    known = attempts(record, [32, 64, 128, 64, 32, 64], [1.0, 1.0, 1.0, 2.5, 2.5, 2.5])
    known[0] = replace(known[0], epoch_energy_joules=None, epoch_time_seconds=None)
    assert first_compared(known) == 3
    # Since the default ran last, they show that it is outdated.
    assert first_compared(known[:4]) == 0


@pytest.mark.parametrize("growth", [1.05, 1 / 1.05])
def test_a_default_that_costs_ever_more_is_compared_with_the_recurrences_of_its_latest_nights(
    record: Make, growth: float
) -> None:
    since = first_compared(attempts(record, [32] * 30, [growth**night for night in range(30)]))
    assert 18 < since < 28


def test_of_the_first_run_of_the_default_on_other_data_no_saving_is_stated(history: Make, record: Make) -> None:
    """The mean of its runs on both data is what it costs on neither."""
    sizes = [32, 32, 64, 64, 32, 64]
    shown = history(*attempts(record, sizes, [1.0] * 4 + [2.5] * 2))
    assert (shown.savings.default, shown.savings.outdated) == (None, True)
    again = history(*attempts(record, [*sizes, 32, 64], [1.0] * 4 + [2.5] * 4))
    assert (again.savings.since, again.savings.outdated) == (4, False)
    last = rows_of(again)[-1].cost_saving_percent
    assert last.value == pytest.approx(50)


def test_a_single_expensive_run_of_the_default_is_no_change_if_others_cost_what_they_did(record: Make) -> None:
    known = attempts(record, [32, 32, 64, 64, 32, 64], [1.0, 1.0, 1.0, 1.0, 2.5, 1.0])
    assert not outdated(known)
    assert outdated(known[:5])


def test_a_default_that_crashes_on_other_data_leaves_the_cause_as_it_was(history: Make, record: Make) -> None:
    known = attempts(record, [32, 64, 64, 64, 64, 64, 64], [1.0] * 4 + [2.5] * 3)
    crashed = record(7, batch_size=32, result="Crashed", epochs=0.0, epoch_energy_joules=None, epoch_time_seconds=None)
    shown = history(*known, crashed)
    assert (shown.savings.since, shown.savings.outdated) == (0, True)


def test_after_a_change_no_power_profile_says_what_the_default_costs(record: Make, profile: Make) -> None:
    known = attempts(record, [32, 64, 128, 64, 32, 64], [1.0] * 3 + [2.5] * 3)
    measured = profile(32, (200.0, 100.0, 1.0))
    measured = replace(
        measured, key=replace(measured.key, gpu_product=known[0].gpu_product, gpu_count=known[0].gpu_count)
    )
    with_profile = comparable_default(known, (measured,), DEFAULT, eta=0.5)
    without = comparable_default(known, (), DEFAULT, eta=0.5)
    assert with_profile.since == 4
    assert with_profile == without


def test_the_energy_that_was_saved_is_of_the_recurrences_of_the_cost(history: Make, record: Make) -> None:
    known = attempts(record, [32, 64, 32, 64], [1.0] * 4)
    # More power in as much time: beyond the bound by the energy alone.
    known[2:] = [
        replace(each, energy_joules=1.6 * each.energy_joules, epoch_energy_joules=1.6 * each.epoch_energy_joules)
        for each in known[2:]
    ]
    shown = history(*known)
    assert shown.energy_savings.since == shown.savings.since == 0
