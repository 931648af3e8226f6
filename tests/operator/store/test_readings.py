"""Energy readings on both databases: repeated and late ones change nothing, thinning changes no energy."""

from __future__ import annotations

import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattloop_operator.store import EnergyReading, Store

on_a_database = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def reading(time_seconds: float, gpu_uuid: str = "GPU-0", job_uid: str = "job", attempt: int = 0) -> EnergyReading:
    return EnergyReading(job_uid, 3, attempt, gpu_uuid, time_seconds, int(time_seconds * 250_000))


@on_a_database
@given(
    sent=st.lists(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["GPU-0", "GPU-1"])), max_size=6), max_size=5)
)
def test_messages_repeated_and_in_any_order_leave_the_same_counters(
    store: Store, sent: list[list[tuple[int, str]]]
) -> None:
    job_uid = uuid.uuid4().hex
    known: set[EnergyReading] = set()
    for message in sent:
        readings = [reading(time, gpu, job_uid) for time, gpu in message]
        assert store.readings.record(readings) == len(set(readings) - known)
        known |= set(readings)
    ordered = sorted(known, key=lambda one: (one.gpu_uuid, one.time_seconds))
    assert store.readings.of_attempt(job_uid, 3, 0) == tuple(ordered)


def test_readings_of_another_attempt_are_another_matter(store: Store) -> None:
    store.readings.record([reading(1), reading(2, attempt=1)])
    assert store.readings.of_attempt("job", 3, 1) == (reading(2, attempt=1),)
    assert store.readings.of_attempt("job", 3, 2) == ()


def test_many_readings_fit_into_one_call(store: Store) -> None:
    many = [reading(float(time)) for time in range(5000)]
    random.Random(1).shuffle(many)
    assert store.readings.record(many) == 5000
    assert store.readings.record(many) == 0


def test_a_counter_near_the_end_of_its_range_is_exact(store: Store) -> None:
    large = EnergyReading("job", 0, 0, "GPU-0", 1_790_000_000.123456, 2**63 - 1)
    store.readings.record([large])
    assert store.readings.of_attempt("job", 0, 0) == (large,)


def test_senders_of_overlapping_readings_at_once_do_not_block_each_other(store: Store) -> None:
    readings = [reading(float(time), gpu) for time in range(20) for gpu in ("GPU-0", "GPU-1")]
    messages = [random.Random(seed).sample(readings, len(readings)) for seed in range(12)]
    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(store.readings.record, messages)) == len(readings)


def test_thinning_keeps_the_ends_of_every_counter_and_other_attempts(store: Store) -> None:
    store.readings.record([reading(time, gpu) for time in range(10) for gpu in ("GPU-0", "GPU-1")])
    store.readings.record([reading(time, attempt=1) for time in range(3)])
    assert store.readings.thin_out("job", 3, 0) == 2 * 8
    times = {
        gpu: [one.time_seconds for one in store.readings.of_attempt("job", 3, 0) if one.gpu_uuid == gpu]
        for gpu in ("GPU-0", "GPU-1")
    }
    assert times == {"GPU-0": [0, 9], "GPU-1": [0, 9]}
    assert [one.time_seconds for one in store.readings.of_attempt("job", 3, 1)] == [0, 1, 2]
    assert store.readings.thin_out("job", 3, 0) == 0


@pytest.mark.parametrize("readings", [[], [reading(1)]])
def test_recording_says_how_many_were_new(store: Store, readings: list[EnergyReading]) -> None:
    assert store.readings.record(readings) == len(readings)
