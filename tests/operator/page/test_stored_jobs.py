"""The versions by which browsers keep what the page shows of a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from support.databases.many_jobs import LONGEST, NAMESPACE, job_body
from support.databases.sample_record import RECORD
from wattloop_operator.domain.names import JobKey
from wattloop_operator.page.stored_jobs import StoredJobs
from wattloop_operator.store.store import Store

KEY = JobKey(NAMESPACE, LONGEST)


def version_of(jobs: StoredJobs, key: JobKey = KEY) -> str:
    job = jobs.job(key)
    assert job is not None
    return job.version


def test_the_versions_of_two_servers_differ_although_their_databases_have_the_same_counts(small: Store) -> None:
    one, other = StoredJobs(small), StoredJobs(small)
    assert version_of(one) == version_of(one)
    assert version_of(one) != version_of(other)
    assert one.version() != other.version()


def test_the_version_of_a_job_changes_with_its_settings(small: Store) -> None:
    jobs = StoredJobs(small)
    before = version_of(jobs)
    stored = small.objects.get("RecurringTrainingJob", NAMESPACE, LONGEST)
    assert stored is not None
    body = job_body(LONGEST)
    body["spec"]["objective"]["energyWeightPercent"] = 90
    small.objects.replace(
        "RecurringTrainingJob", NAMESPACE, LONGEST, body, expected_version=stored.resource_version
    )
    assert version_of(jobs) != before
