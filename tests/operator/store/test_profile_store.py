"""Power profiles on both databases: complete, replaced at once, distinguished by key."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from wattloop.errors import InputError
from wattloop_operator.store import PowerMeasurement, PowerProfileKey, PowerProfileRecord, Store

KEY = PowerProfileKey("0c3b2d9e", 32, "NVIDIA A40", 2, "sha256:aa")


def measured(*limits: float, energy: float = 100.0) -> tuple[PowerMeasurement, ...]:
    return tuple(PowerMeasurement(limit, energy, 10.0, 0.25) for limit in limits)


def test_a_profile_is_read_by_rising_limit(store: Store) -> None:
    store.profiles.record(KEY, reversed(measured(100, 150.5, 300)))
    assert store.profiles.get(KEY) == PowerProfileRecord(KEY, measured(100, 150.5, 300))


def test_a_newer_profile_replaces_the_older_one(store: Store) -> None:
    store.profiles.record(KEY, measured(100, 200, 300))
    store.profiles.record(KEY, measured(150, energy=7))
    assert store.profiles.get(KEY) == PowerProfileRecord(KEY, measured(150, energy=7))


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(KEY, job_uid="another"),
        dataclasses.replace(KEY, batch_size=64),
        dataclasses.replace(KEY, gpu_product="NVIDIA H200"),
        dataclasses.replace(KEY, gpu_count=4),
        dataclasses.replace(KEY, image_digest="sha256:bb"),
    ],
)
def test_profiles_with_different_keys_are_independent(store: Store, other: PowerProfileKey) -> None:
    store.profiles.record(KEY, measured(100))
    assert store.profiles.get(other) is None
    store.profiles.record(other, measured(200))
    assert store.profiles.get(KEY) == PowerProfileRecord(KEY, measured(100))
    assert store.profiles.get(other) == PowerProfileRecord(other, measured(200))


def test_profiles_of_a_job_are_ordered_by_key(store: Store) -> None:
    keys = [dataclasses.replace(KEY, batch_size=size) for size in (128, 8, 32)]
    for key in keys:
        store.profiles.record(key, measured(100, 200))
    store.profiles.record(dataclasses.replace(KEY, job_uid="another"), measured(100))
    assert [profile.key.batch_size for profile in store.profiles.of_job(KEY.job_uid)] == [8, 32, 128]


def test_concurrent_writers_of_a_profile_leave_a_complete_one(store: Store) -> None:
    offered = [measured(100, 200, energy=float(energy)) for energy in range(12)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda profile: store.profiles.record(KEY, profile), offered))
    stored = store.profiles.get(KEY)
    assert stored.measurements in offered


@pytest.mark.parametrize(
    ("measurements", "complaint"), [((), "found no measurements"), (measured(100, 200, 100), "found 100 W twice")]
)
def test_an_invalid_profile_is_rejected_and_the_older_one_stays(
    store: Store, measurements: tuple[PowerMeasurement, ...], complaint: str
) -> None:
    store.profiles.record(KEY, measured(300))
    with pytest.raises(InputError, match=complaint):
        store.profiles.record(KEY, measurements)
    assert store.profiles.get(KEY) == PowerProfileRecord(KEY, measured(300))
