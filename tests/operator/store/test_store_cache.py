"""The store cache: it equals the store, and keeps the records that it knows."""

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.databases.sample_record import RECORD
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.actions import RecordObservation
from wattloop_operator.store import Store, open_store
from wattloop_operator.store.store_cache import StoreCache
from wattloop_planner.metric_curve import MetricCurve


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("store") / "store.db"
    with open_store(f"sqlite:///{path}") as opened:
        yield opened


def record_of(job_uid: str, recurrence: int, attempt: int) -> ObservationRecord:
    return replace(RECORD, job_uid=job_uid, recurrence=recurrence, attempt=attempt)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    added=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), unique=True, max_size=6),
    read_after=st.integers(0, 6),
    job_uid=st.uuids().map(str),
)
def test_added_records_are_those_of_the_store_in_its_order(
    store: Store, added: list[tuple[int, int]], read_after: int, job_uid: str
) -> None:
    cache = StoreCache(store)
    for number, (recurrence, attempt) in enumerate(added):
        if number == read_after:
            cache.of_job(job_uid)
        cache.record(RecordObservation(record_of(job_uid, recurrence, attempt)))
    assert cache.of_job(job_uid).records == store.observations.of_job(job_uid)


def test_known_records_stay_the_same_objects_when_one_is_added(store: Store) -> None:
    cache = StoreCache(store)
    store.observations.record(record_of("job-kept", 0, 0))
    (first,) = cache.of_job("job-kept").records
    cache.record(RecordObservation(record_of("job-kept", 1, 0)))
    assert cache.of_job("job-kept").records[0] is first


def test_the_records_of_many_jobs_take_no_more_than_the_share_and_those_used_last_stay(store: Store) -> None:
    for job in range(6):
        for recurrence in range(10):
            store.observations.record(record_of(f"job-{job}", recurrence, 0))
    size = StoreCache(store).of_job("job-0").size_bytes
    cache = StoreCache(store, max_bytes=3 * size)
    read = [cache.of_job(f"job-{job}") for job in range(6)]
    assert [cache.of_job(f"job-{job}") is read[job] for job in (5, 4, 3, 0)] == [True, True, True, False]


def test_a_job_with_more_records_than_the_share_is_remembered_alone(store: Store) -> None:
    for recurrence in range(10):
        store.observations.record(record_of("job-small", recurrence, 0))
        for attempt in range(3):
            store.observations.record(record_of("job-large", recurrence, attempt))
    cache = StoreCache(store, max_bytes=20 * StoreCache(store).of_job("job-small").size_bytes // 10)
    small, large = cache.of_job("job-small"), cache.of_job("job-large")
    assert cache.of_job("job-large") is large
    assert cache.of_job("job-small") is not small


@pytest.mark.parametrize("is_long", [False, True])
def test_the_size_that_records_count_is_what_they_take_in_memory(store: Store, is_long: bool) -> None:
    curve = MetricCurve(tuple(float(each + 1) for each in range(64)), tuple(each / 7 for each in range(64)))
    long = {"curve": curve, "reason": "é" * 2000, "parameters": tuple((f"p{each}", "v" * 200) for each in range(4))}
    job = f"job-{is_long}"
    for recurrence in range(100):
        record = replace(record_of(job, recurrence, 0), **(long if is_long else {"curve": None}))
        store.observations.record(record)
    StoreCache(store).of_job(job)
    tracemalloc.start()
    try:
        cache = StoreCache(store)
        counted = cache.of_job(job).size_bytes
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < counted < 3 * taken
