"""Reads a job's history from a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.errors import UsageError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.store import JobObservations, ObservationRecord, Store

# Of a job that is not stored.
DEFAULT_ETA = 0.5


@dataclass(frozen=True)
class JobSelector:
    """Selects a job in a database.

    Attributes:
        name: The job's name; None for the only job of the database.
        namespace: Its namespace; None for the only namespace with a job of this name.
        uid: Its UID; None for the job of this name that ran last.
    """

    name: str | None
    namespace: str | None = None
    uid: str | None = None


def stored_history(store: Store, selector: JobSelector) -> JobHistory:
    """Read a job's history.

    The local mode stores the job itself beside its observations. Of a cluster's job there are only
    observations, so it has no default batch size to compare with.

    Raises:
        UsageError: There is no such job, or there are several. The message lists the jobs.
        InputError: The stored job is invalid.
        OperationError: The database failed.
    """
    found = _find(store, selector)
    records, profiles = store.observations.of_job(found.job_uid), store.profiles.of_job(found.job_uid)
    job = _job(store, found)
    if job is not None:
        return JobHistory.of_job(job, records, profiles)
    # The first attempt of a job ran its defaults.
    defaults = dict(records[0].parameters) if records else {}
    return JobHistory(
        found.namespace, found.job_name, DEFAULT_ETA, None, records, profiles, default_parameters=defaults
    )


def _find(store: Store, selector: JobSelector) -> JobObservations:
    jobs = store.observations.jobs()
    found = [
        job
        for job in jobs
        if selector.name in (None, job.job_name)
        and selector.namespace in (None, job.namespace)
        and selector.uid in (None, job.job_uid)
    ]
    names = {job.job_name for job in found}
    if len(names) > 1:
        raise UsageError(f"{store.name}: there are several jobs; name one, with --database: {_listed(found)}")
    wanted = selector.name or "of any name"
    name = wanted if selector.namespace is None else f"{selector.namespace}/{wanted}"
    name += "" if selector.uid is None else f" of uid {selector.uid}"
    if not found:
        available = _listed(jobs) or "none yet"
        raise UsageError(f"{store.name}: there are no recurrences of a job {name}; jobs with recurrences: {available}")
    if len({job.namespace for job in found}) > 1:
        raise UsageError(f"{store.name}: there are several jobs {name}; choose with --namespace: {_listed(found)}")
    return max(found, key=lambda job: _last_end(store.observations.of_job(job.job_uid)))


def _last_end(records: Sequence[ObservationRecord]) -> tuple[float, str]:
    return max((record.finished_at.timestamp(), record.job_uid) for record in records)


def _listed(jobs: Sequence[JobObservations]) -> str:
    names = sorted({f"{job.namespace}/{job.job_name}" for job in jobs})
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _job(store: Store, found: JobObservations) -> RecurringTrainingJob | None:
    stored = store.objects.get("RecurringTrainingJob", found.namespace, found.job_name)
    if stored is None:
        return None
    job = stored.read_as(RecurringTrainingJob)
    return job if job.metadata.uid == found.job_uid else None
