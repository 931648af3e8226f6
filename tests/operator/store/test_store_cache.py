"""The store cache: it equals the store, and keeps the records that it knows."""

from __future__ import annotations

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


def test_a_record_that_was_read_before_it_is_added_is_there_once(store: Store) -> None:
    cache = StoreCache(store)
    store.observations.record(record_of("job-once", 0, 0))
    read = cache.of_job("job-once").records
    cache.add(record_of("job-once", 0, 0))
    assert cache.of_job("job-once").records == read
