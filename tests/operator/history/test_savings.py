"""Costs of recurrences over their attempts, and cumulative savings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wattloop_operator.history.rows import rows_of
from wattloop_operator.history.savings import costs_of, running_saving_joules, saving_sentence
from wattloop_planner.bandit.configuration import Configuration

Make = Callable[..., Any]


def test_the_attempts_of_a_recurrence_add_up(history: Make, record: Make) -> None:
    missed, reached = record(0, 0, batch_size=8, result="Stopped"), record(0, 1)
    (recurrence,) = costs_of(rows_of(history(missed, reached)))
    assert recurrence.attempts == ((Configuration(8), 2500.0), (Configuration(32), 2500.0))
    assert recurrence.cost_joules == 5000.0
    assert recurrence.reached


def test_a_recurrence_without_a_known_cost_is_left_out(history: Make, record: Make) -> None:
    unknown = record(0, result="NameConflict", max_power_watts=0.0)
    assert [each.recurrence for each in costs_of(rows_of(history(unknown, record(1))))] == [1]


def test_an_expensive_retry_reduces_the_savings(history: Make, record: Make) -> None:
    records = [
        record(0),
        record(1, 0, result="Stopped", batch_size=8),
        record(1, 1),
        record(2, batch_size=64, energy_joules=1000.0),
    ]
    costs = costs_of(rows_of(history(*records)))
    assert running_saving_joules(costs, 2500.0) == (0.0, -2500.0, -2000.0)


@pytest.mark.parametrize(
    ("energy_joules", "current_cost", "total"),
    [
        (1000.0, "costs 2,250 J now (mean of the last 2), 90 %", "10 % was saved."),
        (4000.0, "3,000 J", "20 % was lost."),
    ],
)
def test_the_sentence_gives_the_current_cost(
    history: Make, record: Make, energy_joules: float, current_cost: str, total: str
) -> None:
    sentence = saving_sentence(rows_of(history(record(0), record(1, batch_size=64, energy_joules=energy_joules))))
    assert current_cost in sentence
    assert "of the 2,500 J in the default configuration; over all 2 recurrences, learning included" in sentence
    assert sentence.endswith(total)


def test_runs_without_energy_say_how_to_let_simulated_time_pass(history: Make, record: Make) -> None:
    free = record(0, energy_joules=0.0, time_seconds=0.0)
    assert "Add --simulated-load cpu, or --time-scale 1" in saving_sentence(rows_of(history(free)))


def test_the_sentence_counts_one_recurrence_as_one(history: Make, record: Make) -> None:
    assert "configuration; over its one recurrence, learning included" in saving_sentence(rows_of(history(record(0))))


def test_the_sentence_omits_unknown_costs(history: Make, record: Make) -> None:
    assert saving_sentence(()) == "No costs are known yet."
    assert "is not known before its batch size has reached the target" in saving_sentence(
        rows_of(history(record(batch_size=64)))
    )


def test_recurrences_with_an_earlier_target_are_not_compared(history: Make, record: Make) -> None:
    earlier = [record(index, target_threshold=0.9, energy_joules=9000.0) for index in range(3)]
    present = [record(3), record(4, batch_size=64, energy_joules=1000.0)]
    rows = rows_of(history(*earlier, *present))
    assert [row.default_cost_joules for row in rows] == [None, None, None, 2500.0, 2500.0]
    assert saving_sentence(rows) == saving_sentence(rows_of(history(*present)))
