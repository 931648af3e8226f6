"""The versions by which browsers keep what the page shows of a database."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event

from support.databases.many_jobs import LONGEST, NAMESPACE, job_body
from support.databases.sample_record import RECORD
from wattloop_operator.domain.names import JobKey
from wattloop_operator.page.stored_jobs import StoredJobs
from wattloop_operator.store.store import Store

KEY = JobKey(NAMESPACE, LONGEST)


def version_of(jobs: StoredJobs, key: JobKey = KEY) -> str:
    return jobs.job(key).version


def test_the_versions_of_two_servers_differ_although_their_databases_have_the_same_counts(small: Store) -> None:
    one, other = StoredJobs(small), StoredJobs(small)
    assert version_of(one) == version_of(one)
    assert version_of(one) != version_of(other)
    assert one.version() != other.version()


def test_the_version_of_a_job_changes_with_its_settings(small: Store) -> None:
    jobs = StoredJobs(small)
    before = version_of(jobs)
    stored = small.objects.get("RecurringTrainingJob", NAMESPACE, LONGEST)
    body = job_body(LONGEST)
    body["spec"]["objective"]["energyWeightPercent"] = 90
    small.objects.replace("RecurringTrainingJob", NAMESPACE, LONGEST, body, expected_version=stored.resource_version)
    assert version_of(jobs) != before


def test_an_attempt_of_any_uid_changes_a_job_without_an_object_and_the_uid_that_ran_last_is_shown(empty: Store) -> None:
    # The job was deleted and made again, and its new uid comes first in the order of the text.
    ended = replace(RECORD, job_uid="b", recurrence=7, batch_size=16)
    again = replace(RECORD, job_uid="a", batch_size=64, finished_at=RECORD.finished_at + timedelta(days=1))
    empty.observations.record(ended)
    key, jobs = JobKey(RECORD.namespace, RECORD.job_name), StoredJobs(empty)
    before = version_of(jobs, key)
    empty.observations.record(again)
    job = jobs.job(key)
    assert job.version != before
    assert [each.batch_size for each in job.history.records] == [64]
    (overview,) = jobs.overviews([key])
    assert (overview.recurrence, overview.batch_size) == (0, 64)


def test_the_latest_end_is_read_from_the_database_again_only_after_a_change(empty: Store) -> None:
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    empty.observations.record(RECORD)
    jobs = StoredJobs(empty)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert jobs.latest_end() == jobs.latest_end() == RECORD.finished_at
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert sum("max(observations.finished_at)" in each for each in statements) == 1
    later = RECORD.finished_at + timedelta(days=1)
    empty.observations.record(replace(RECORD, recurrence=1, recurrence_name="later", finished_at=later))
    assert jobs.latest_end() == later
