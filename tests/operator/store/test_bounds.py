"""Each table has a stated bound for what one tenant can store, and keeps it; the newest stays."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from support.databases.sample_pod_energy import POD_ENERGY
from wattloop.pipeline.plan_messages import MAX_STAGES
from wattloop.wire.training_messages import MAX_LIMITS
from wattloop_operator.domain.records import MAX_OBSERVATIONS_OF_JOB
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_CLOCK_LISTS,
    MAX_PROCESSES_PER_RANK,
    MAX_RANKS,
    JobPlan,
    PipelineKey,
    PipelineState,
)
from wattloop_operator.store import (
    LateUsage,
    ObservationRecord,
    PowerMeasurement,
    PowerProfileKey,
    Store,
    pipeline_profiles,
    pod_energies,
    profile_store,
)
from wattloop_operator.store import observation_store as stored_observations
from wattloop_operator.store import pipeline_store as stored_pipelines
from wattloop_operator.store.observation_store import MAX_JOBS_OF_NAMESPACE
from wattloop_operator.store.pipeline_store import MAX_PIPELINES_OF_JOB
from wattloop_operator.store.tables import METADATA

Make = Callable[..., ObservationRecord]
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "security.md"
# Table, rows, of what, bytes.
ROW = re.compile(
    r"^\| `(\w+)` \| ([\d,]+) (?:for|of) ([^|]+) \| ([\d,]+) (B|KiB|MiB) (?:a row|in all)[^|]*\|", re.MULTILINE
)
STATED = {name: (int(rows.replace(",", "")), of) for name, rows, of, _, _ in ROW.findall(PAGE.read_text())}
ROWS = {
    "observations": MAX_OBSERVATIONS_OF_JOB,
    "late_usages": MAX_OBSERVATIONS_OF_JOB,
    "decisions": MAX_OBSERVATIONS_OF_JOB,
    "power_profiles": profile_store.MAX_PROFILES_OF_JOB,
    "power_measurements": MAX_LIMITS,
    "pod_energies": pod_energies.MAX_ROWS_OF_ATTEMPT,
    "pipeline_profiles": pipeline_profiles.MAX_PROFILES_OF_JOB,
    "pipelines": MAX_PIPELINES_OF_JOB,
    "pipeline_parts": MAX_CLOCK_LISTS * MAX_STAGES,
    "pipeline_ranks": MAX_RANKS,
    "pipeline_measurements": MAX_RANKS * MAX_PROCESSES_PER_RANK,
}


@pytest.mark.parametrize("table", [table.name for table in METADATA.sorted_tables])
def test_the_security_page_states_the_rows_and_bytes_of_each_table(table: str) -> None:
    assert table in STATED, f"security.md, “Bounds of the store”: no row `{table}` with numbers of rows and bytes"
    assert STATED[table][0] == ROWS.get(table, STATED[table][0])


def test_of_a_job_the_oldest_attempts_are_deleted(
    store: Store, observation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_observations, "MAX_OBSERVATIONS_OF_JOB", 3)
    for recurrence in range(3):
        for attempt in range(2):
            store.observations.record(observation(recurrence=recurrence, attempt=attempt))
            store.late_usages.record(LateUsage(observation().job_uid, recurrence, attempt, 1.0, 1.0))
    store.observations.record(observation(job_uid="another"))
    kept = [(1, 1), (2, 0), (2, 1)]
    uid = observation().job_uid
    assert [(each.recurrence, each.attempt) for each in store.observations.of_job(uid)] == kept
    assert [(each.recurrence, each.attempt) for each in store.late_usages.of_job(uid)] == kept
    assert len(store.observations.of_job("another")) == 1


def test_of_a_namespace_the_jobs_whose_last_attempt_ended_first_are_deleted(
    store: Store, observation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_JOBS_OF_NAMESPACE == 1_000
    monkeypatch.setattr(stored_observations, "MAX_JOBS_OF_NAMESPACE", 3)
    store.observations.record(observation(job_uid="of another namespace", namespace="other"))
    for number in (2, 1, 3, 4):
        uid = f"job-{number}"
        at = observation().finished_at + timedelta(hours=number)
        store.observations.record(observation(job_uid=uid, finished_at=at))
        store.late_usages.record(LateUsage(uid, 0, 0, 1.0, 1.0))
        store.profiles.record(PowerProfileKey(uid, 32, "NVIDIA A40", 1), [PowerMeasurement(100.0, 1.0, 1.0, 1.0)])
    assert {each.job_uid for each in store.observations.jobs()} == {
        "job-2", "job-3", "job-4", "of another namespace",
    }  # fmt: skip
    assert store.late_usages.of_job("job-1") == store.profiles.of_job("job-1") == ()
    assert store.late_usages.of_job("job-2") != ()
    assert store.profiles.of_job("job-2") != ()


def test_of_a_job_the_oldest_power_profiles_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_store, "MAX_PROFILES_OF_JOB", 2)
    point = PowerMeasurement(100.0, 1.0, 1.0, 1.0)
    for image in ("a", "b", "c", "b"):
        store.profiles.record(PowerProfileKey("job", 32, "NVIDIA A40", 1, image), [point])
    store.profiles.record(PowerProfileKey("another", 32, "NVIDIA A40", 1), [point])
    assert [each.key.image_digest for each in store.profiles.of_job("job")] == ["b", "c"]
    assert len(store.profiles.of_job("another")) == 1


def test_of_an_attempt_ended_pods_of_the_least_energy_are_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_energies, "MAX_ROWS_OF_ATTEMPT", 3)
    rows = [
        replace(POD_ENERGY, pod_uid=f"pod-{number}", energy_millijoules=1000 * number, ended=number > 0)
        for number in range(6)
    ]
    store.pod_energies.record([*rows, replace(POD_ENERGY, pod_uid="pod-9", attempt=1)])
    assert store.pod_energies.delete_surplus() == 3
    assert [each.pod_uid for each in store.pod_energies.of_attempt("job", 0, 0)] == ["pod-0", "pod-4", "pod-5"]
    assert len(store.pod_energies.of_attempt("job", 0, 1)) == 1
    assert store.pod_energies.delete_surplus() == 0


def test_of_a_job_the_pipelines_that_are_silent_longest_are_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_pipelines, "MAX_PIPELINES_OF_JOB", 3)
    now = POD_ENERGY.reported_at
    for number, job in enumerate(("another", "job", "job", "job", "job")):
        new = PipelineState(PipelineKey(job, number, 0), "team", f"digits-{number}")
        # The first of the job is heard again.
        for at in (now + timedelta(hours=number), now + timedelta(hours=10 if number == 1 else number)):
            plan = JobPlan(enabled=at.hour % 2 == 0)
            store.pipelines.change(
                new, None, lambda state: state, lambda state, plan=plan: replace(state, job_plan=plan), at
            )  # fmt: skip
    assert {(key.job_uid, key.recurrence) for key in store.pipelines.revisions()} == {
        ("another", 0), ("job", 1), ("job", 3), ("job", 4),
    }  # fmt: skip
