"""Messages of a pipeline are committed together, and no pipeline delays the messages of another one."""

import json
import tracemalloc
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.registrations import rank_registration
from wattloop.pipeline.plan_messages import RankReport
from wattloop_operator.memory_shares import WAITING_MESSAGES
from wattloop_operator.reconcile.pipeline.held_bytes import message_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reporting.interfaces import TooManyRequestsError
from wattloop_operator.reporting.pipeline_commits import (
    MAX_WAITING_BYTES_OF_PIPELINE,
    Message,
    MessageGroups,
    ReportOfRank,
    _Waiting,
)

MESSAGE = ReportOfRank(0, RankReport("0" * 32, 1, 0, 0))


def key_of(job: str) -> PipelineKey:
    return PipelineKey(job, 0, 0)


def message(job: str, sent: Message = MESSAGE) -> _Waiting:
    return _Waiting(PipelineState(key_of(job), "team", job), sent, Future())


def taken(groups: MessageGroups, *, everything: bool = False) -> dict[str, list[_Waiting]]:
    return {group[0].new.name: group for group in groups.take(everything=everything)}


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_group_is_due_with_its_most_urgent_message() -> None:
    clock = Clock()
    groups = MessageGroups(clock)
    report, other, registration = message("a"), message("b"), message("a", rank_registration(0))
    groups.add(report, 0.2)
    groups.add(other, 0.2)
    groups.add(registration, 0.02)
    clock.now = groups.first_due
    assert (clock.now, taken(groups)) == (0.02, {"a": [report, registration]})
    clock.now = groups.first_due
    assert (clock.now, taken(groups), groups.first_due) == (0.2, {"b": [other]}, float("inf"))


def test_a_pipeline_that_is_slow_to_store_delays_no_other() -> None:
    clock = Clock()
    groups = MessageGroups(clock)
    first, second, quick = message("slow"), message("slow"), message("quick")
    groups.pause(key_of("slow"), 1.0)
    groups.add(first, 0.02)
    groups.add(quick, 0.02)
    clock.now = groups.first_due
    assert taken(groups) == {"quick": [quick]}
    assert groups.first_due == 2.0
    groups.pause(key_of("slow"), 1e6)
    groups.add(second, 0.02)
    clock.now = groups.first_due
    assert taken(groups) == {"slow": [first, second]}
    assert clock.now <= 6.0


def test_what_waits_holds_a_bounded_number_of_bytes_of_which_one_pipeline_has_half() -> None:
    groups = MessageGroups(Clock())
    long = replace(rank_registration(0), instructions=tuple(f"forward:0:{number}" for number in range(16_000)))
    size = message_bytes(long)
    for _ in range(MAX_WAITING_BYTES_OF_PIPELINE // size):
        groups.add(message("a", long), 0.02)
    with pytest.raises(TooManyRequestsError, match="recurrence team/a"):
        groups.add(message("a", long), 0.02)
    for number in range(WAITING_MESSAGES // size - MAX_WAITING_BYTES_OF_PIPELINE // size):
        groups.add(message(f"b{number % 9}", long), 0.02)
    with pytest.raises(TooManyRequestsError, match="all pipelines together"):
        groups.add(message("c", long), 0.02)
    groups.take(everything=True)
    groups.add(message("c", long), 0.02)


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
    assert held <= message_bytes(report) <= 4 * held


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 0.3), st.floats(0, 10)), max_size=40))
def test_every_message_is_taken_once_and_within_its_waits(steps: list[tuple[int, float, float]]) -> None:
    clock = Clock()
    groups = MessageGroups(clock)
    sent, found = [message(str(key)) for key, _, _ in steps], list[_Waiting]()
    for number, (each, (key, wait, took)) in enumerate(zip(sent, steps, strict=True)):
        groups.add(each, wait)
        if number % 3 == 0:
            clock.now = max(clock.now, groups.first_due)
            for group in groups.take():
                found += group
                groups.pause(key_of(str(key)), took)
    clock.now += 6.0
    for group in groups.take():
        found += group
    assert sorted(map(id, found)) == sorted(map(id, sent))
