"""Every joule of the simulated GPUs is attributed, also when pods are killed in the middle of a step."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.training_journal import BEGINS, HAS_ALIGNED, NOBODY, WORKED, Entry, energy_uses

CLOCK = itertools.count(1)


def note(pod: str, what: str, **joules: float) -> Entry:
    return Entry(pod, what, float(next(CLOCK)), joules)


def parts(
    entries: list[Entry], first: dict[str, float], last: dict[str, float]
) -> dict[str, tuple[float, float, float]]:
    found = energy_uses(entries, first, last)
    return {pod: (use.worked_joules, use.aligned_joules, use.disputed_joules) for pod, use in found.items()}


def test_energy_after_a_pods_last_record_belongs_to_the_pod() -> None:
    entries = [note("a", BEGINS, g=0), note("a", WORKED, g=100), note("b", BEGINS, g=130), note("b", WORKED, g=200)]
    assert parts(entries, {"g": 0}, {"g": 205}) == {"a": (130, 0, 0), "b": (75, 0, 0)}


def test_alignment_is_counted_apart_from_work() -> None:
    entries = [note("a", BEGINS, g=0, h=50), note("a", HAS_ALIGNED, g=40, h=50), note("a", WORKED, g=100, h=110)]
    assert parts(entries, {"g": 0, "h": 50}, {"g": 100, "h": 110}) == {"a": (120, 40, 0)}


def test_a_burst_is_the_most_in_a_second() -> None:
    at = [
        (0.0, BEGINS, 0),
        (1.0, WORKED, 10),
        (2.0, WORKED, 20),
        (9.0, WORKED, 30),
        (9.5, WORKED, 90),
        (20.0, WORKED, 95),
    ]
    entries = [Entry("a", what, seconds, {"g": joules}) for seconds, what, joules in at]
    assert energy_uses(entries, {"g": 0}, {"g": 95})["a"].burst_joules == 60


def test_unrecorded_energy_belongs_to_no_pod() -> None:
    assert parts([note("a", BEGINS, g=30)], {"g": 10}, {"g": 30}) == {NOBODY: (20, 0, 0), "a": (0, 0, 0)}


def test_concurrent_work_of_two_pods_on_one_gpu_is_disputed() -> None:
    entries = [note("a", BEGINS, g=0), note("b", BEGINS, g=10), note("a", WORKED, g=30), note("b", WORKED, g=60)]
    assert parts(entries, {"g": 0}, {"g": 60}) == {"a": (30, 0, 20), "b": (30, 0, 20)}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([BEGINS, HAS_ALIGNED, WORKED]), st.integers(0, 9))))
def test_the_sum_equals_the_simulators_energy(steps: list[tuple[str, str, int]]) -> None:
    total = 5.0
    entries = []
    for pod, what, joules in steps:
        total += joules
        entries.append(note(pod, what, g=total))
    found = energy_uses(entries, {"g": 5.0}, {"g": total + 3})
    assert sum(use.worked_joules + use.aligned_joules for use in found.values()) == pytest.approx(total + 3 - 5)
