"""Energies of pods on both databases: order and repetition of reports change nothing."""

import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.databases.sample_pod_energy import POD_ENERGY, REPORTED_AT
from wattloop_operator.store import PodEnergy, Store

ENERGY = replace(POD_ENERGY, recurrence=3)


def after(seconds: int, *, ended: bool = False) -> PodEnergy:
    """The usage at this number of seconds after its start."""
    return replace(
        ENERGY,
        energy_millijoules=1000 * seconds,
        uncertainty_millijoules=10 + seconds,
        time_seconds=5.0 + seconds,
        ended=ended,
        reported_at=REPORTED_AT + timedelta(seconds=seconds),
    )


def stored(store: Store, job_uid: str, attempt: int) -> tuple[PodEnergy, ...]:
    return store.pod_energies.of_job(job_uid, ENERGY.recurrence).get((ENERGY.recurrence, attempt), ())


@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_repeated_late_and_lost_reports_give_the_newest_reading(store: Store, seconds: list[int]) -> None:
    job_uid = uuid.uuid4().hex
    for second in seconds:
        store.pod_energies.record([replace(after(second, ended=second == 9), job_uid=job_uid, pod_uid=job_uid)])
    expected = after(max(seconds), ended=max(seconds) == 9)
    assert stored(store, job_uid, 0) == (replace(expected, job_uid=job_uid, pod_uid=job_uid),)


def test_a_late_report_after_the_end_changes_nothing(store: Store) -> None:
    store.pod_energies.record([after(4, ended=True)])
    store.pod_energies.record([after(3)])
    store.pod_energies.record([after(4)])
    assert stored(store, "job", 0) == (after(4, ended=True),)


def test_an_end_without_further_energy_is_stored(store: Store) -> None:
    store.pod_energies.record([after(4)])
    store.pod_energies.record([after(4, ended=True)])
    assert stored(store, "job", 0) == (after(4, ended=True),)


def test_a_pod_that_gets_its_gpu_again_is_active_again(store: Store) -> None:
    store.pod_energies.record([after(4, ended=True)])
    store.pod_energies.record([after(7)])
    assert stored(store, "job", 0) == (after(7),)


def test_a_shared_usage_stays_shared(store: Store) -> None:
    store.pod_energies.record([replace(after(1), shared=True)])
    store.pod_energies.record([after(2)])
    assert stored(store, "job", 0) == (replace(after(2), shared=True),)


def test_another_ledger_pod_container_or_gpu_is_another_row(store: Store) -> None:
    others = [
        replace(ENERGY, **{name: "other"})  # type: ignore[arg-type]
        for name in ("ledger", "pod_uid", "container", "gpu_uuid")
    ]
    store.pod_energies.record([ENERGY, *others])
    assert set(stored(store, "job", 0)) == {ENERGY, *others}


def test_the_energies_of_a_job_are_read_by_attempt_from_a_recurrence_on(store: Store) -> None:
    second = replace(ENERGY, attempt=1, pod_uid="pod-2")
    earlier = replace(ENERGY, recurrence=2, pod_uid="pod-3")
    store.pod_energies.record([ENERGY, second, earlier, replace(ENERGY, job_uid="another", pod_uid="pod-4")])
    assert store.pod_energies.of_job("job", 3) == {(3, 0): (ENERGY,), (3, 1): (second,)}
    assert list(store.pod_energies.of_job("job", 0)) == [(2, 0), (3, 0), (3, 1)]


def test_deleting_an_attempt_deletes_its_energies_alone(store: Store) -> None:
    other = replace(ENERGY, attempt=1, pod_uid="pod-2")
    store.pod_energies.record([ENERGY, other])
    store.pod_energies.delete_attempt("job", 3, 0)
    assert stored(store, "job", 0) == ()
    assert stored(store, "job", 1) == (other,)


def test_a_reported_pod_is_known_for_its_ledger_and_node_alone(store: Store) -> None:
    store.pod_energies.record([ENERGY, replace(ENERGY, pod_uid="pod-2", attempt=1)])
    wanted = ["pod-1", "pod-2", "pod-3"]
    known = {"pod-1": ("job", 3, 0), "pod-2": ("job", 3, 1)}
    assert store.pod_energies.attempts_of("node-1", "ledger", wanted) == known
    assert store.pod_energies.attempts_of("node-2", "ledger", wanted) == {}
    assert store.pod_energies.attempts_of("node-1", "another", wanted) == {}


def test_deleting_a_job_deletes_its_energies(store: Store) -> None:
    other = replace(ENERGY, job_uid="other", pod_uid="pod-2")
    store.pod_energies.record([ENERGY, replace(ENERGY, attempt=1, pod_uid="pod-3"), other])
    store.pod_energies.delete_job("job")
    assert stored(store, "job", 0) == stored(store, "job", 1) == ()
    assert stored(store, "other", 0) == (other,)


def test_old_energies_are_deleted_in_bounded_batches(store: Store) -> None:
    old = [
        replace(ENERGY, pod_uid=f"old-{number}", reported_at=REPORTED_AT - timedelta(days=40)) for number in range(3)
    ]
    store.pod_energies.record([*old, ENERGY])
    month = REPORTED_AT - timedelta(days=30)
    assert [store.pod_energies.delete_before(month, max_rows=2) for _ in range(3)] == [2, 1, 0]
    assert stored(store, "job", 0) == (ENERGY,)


def test_concurrent_writers_of_the_same_energies_do_not_deadlock(store: Store) -> None:
    reports = [
        [replace(after(second), pod_uid=f"pod-{pod}") for pod in range(10)][:: 1 if second % 2 else -1]
        for second in range(12)
    ]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(store.pod_energies.record, reports))
    found = stored(store, "job", 0)
    assert [energy.energy_millijoules for energy in found] == list(itertools.repeat(11_000, 10))


def test_a_report_without_the_maximum_power_limit_keeps_the_known_one(store: Store) -> None:
    store.pod_energies.record([replace(after(1), max_power_limit_watts=700.0, measured_at=REPORTED_AT)])
    store.pod_energies.record([replace(after(2), measured_at=REPORTED_AT + timedelta(seconds=1))])
    expected = replace(after(2), max_power_limit_watts=700.0, measured_at=REPORTED_AT + timedelta(seconds=1))
    assert store.pod_energies.of_attempt("job", 3, 0) == (expected,)
