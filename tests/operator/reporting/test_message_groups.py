"""Messages of a pipeline are committed together, and no pipeline delays the messages of another one."""

import json
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.pipeline.plan_messages import RankReport
from wattloop_operator.memory_shares import WAITING_MESSAGES
from wattloop_operator.reconcile.pipeline.held_bytes import report_bytes
from wattloop_operator.reporting.interfaces import TooManyRequestsError
from wattloop_operator.reporting.message_groups import (
    MAX_WAITING,
    MAX_WAITING_BYTES_OF_PIPELINE,
    MAX_WAITING_OF_PIPELINE,
    MessageGroups,
)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_group_is_due_with_its_most_urgent_message() -> None:
    clock = Clock()
    groups: MessageGroups[str, str] = MessageGroups(clock)
    groups.add("a", "a", "report", 1, 0.2)
    groups.add("b", "b", "other report", 1, 0.2)
    groups.add("a", "a", "registration", 1, 0.02)
    clock.now = groups.first_due
    assert (clock.now, groups.take()) == (0.02, {"a": ["report", "registration"]})
    clock.now = groups.first_due
    assert (clock.now, groups.take(), groups.first_due) == (0.2, {"b": ["other report"]}, float("inf"))


def test_a_pipeline_that_is_slow_to_store_delays_no_other() -> None:
    clock = Clock()
    groups: MessageGroups[str, str] = MessageGroups(clock)
    groups.pause("slow", 1.0)
    groups.add("slow", "slow", "x", 1, 0.02)
    groups.add("quick", "quick", "x", 1, 0.02)
    clock.now = groups.first_due
    assert groups.take() == {"quick": ["x"]}
    assert groups.first_due == 2.0
    groups.pause("slow", 1e6)
    groups.add("slow", "slow", "y", 1, 0.02)
    clock.now = groups.first_due
    assert groups.take() == {"slow": ["x", "y"]}
    assert clock.now <= 6.0


def test_a_pipeline_cannot_fill_the_waiting_messages() -> None:
    groups: MessageGroups[str, int] = MessageGroups(Clock())
    for number in range(MAX_WAITING_OF_PIPELINE):
        groups.add("a", "recurrence a", number, 1, 0.02)
    with pytest.raises(TooManyRequestsError, match="recurrence a"):
        groups.add("a", "recurrence a", 0, 1, 0.02)
    for number in range(MAX_WAITING - MAX_WAITING_OF_PIPELINE):
        groups.add(f"b{number % 9}", "recurrence b", number, 1, 0.02)
    with pytest.raises(TooManyRequestsError, match="all pipelines together"):
        groups.add("c", "recurrence c", 0, 1, 0.02)
    assert sum(map(len, groups.take(everything=True).values())) == MAX_WAITING
    groups.add("c", "recurrence c", 0, 1, 0.02)


def test_long_messages_that_wait_hold_a_bounded_number_of_bytes() -> None:
    mebibyte = 1024**2
    groups: MessageGroups[str, int] = MessageGroups(Clock())
    for number in range(MAX_WAITING_BYTES_OF_PIPELINE // mebibyte):
        groups.add("a", "recurrence a", number, mebibyte, 0.02)
    with pytest.raises(TooManyRequestsError, match="recurrence a"):
        groups.add("a", "recurrence a", 0, 1, 0.02)
    for number in range((WAITING_MESSAGES - MAX_WAITING_BYTES_OF_PIPELINE) // mebibyte):
        groups.add(f"b{number % 9}", "recurrence b", number, mebibyte, 0.02)
    with pytest.raises(TooManyRequestsError, match="all pipelines together"):
        groups.add("c", "recurrence c", 0, 1, 0.02)
    groups.take(everything=True)
    groups.add("a", "recurrence a", 0, MAX_WAITING_BYTES_OF_PIPELINE, 0.02)


def test_the_bytes_of_a_report_are_those_that_it_holds() -> None:
    measurement = {
        "kind": "forward",
        "stage": 0,
        "repetitions": 8,
        "time_seconds": 0.1,
        "time_error_seconds": 0.01,
        "energy_joules": 20.0,
        "energy_error_joules": 0.5,
    }
    measurements = [{**measurement, "megahertz": 300 + number} for number in range(2_048)]
    numbers = dict.fromkeys(("sequence", "directive", "iterations", "applied_directive", "measured_iterations"), 0)
    body = {**numbers, "process": "0" * 32, "measurements": measurements}
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    report = RankReport.from_json(json.loads(json.dumps(body)))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held <= report_bytes(report) <= 4 * held


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 0.3), st.floats(0, 10)), max_size=40))
def test_every_message_is_taken_once_and_within_its_waits(steps: list[tuple[int, float, float]]) -> None:
    clock = Clock()
    groups: MessageGroups[int, int] = MessageGroups(clock)
    taken: list[int] = []
    for number, (key, wait, took) in enumerate(steps):
        groups.add(key, "", number, 1, wait)
        if number % 3 == 0:
            clock.now = max(clock.now, groups.first_due)
            for each, group in groups.take().items():
                taken += group
                groups.pause(each, took)
    clock.now += 6.0
    for group in groups.take().values():
        taken += group
    assert sorted(taken) == list(range(len(steps)))
