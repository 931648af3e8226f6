"""A job's history as a database remembers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from wattloop.errors import InputError, UsageError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.store import JobObservations, ObservationRecord, Store


@dataclass(frozen=True)
class WantedJob:
    """Which job's history is wanted.

    Attributes:
        name: The job's name.
        namespace: Its namespace; None: whichever has a job of this name.
        uid: Its uid; None: the one that ran last of those that had the name.
        eta: Weight of energy in the cost; None: as the job says, 0.5 where that is not known.
        default_batch_size: The batch size to compare with; None: as the job says.
    """

    name: str
    namespace: str | None = None
    uid: str | None = None
    eta: float | None = None
    default_batch_size: int | None = None


DEFAULT_ETA = 0.5


def stored_history(store: Store, wanted: WantedJob) -> JobHistory:
    """Read a job's history.

    The local mode keeps the job itself beside its observations; of a cluster's job only the observations are there,
    and η and the default batch size must be said.

    Raises:
        UsageError: There is no such job, or there are several; the text names those that there are.
        InputError: What the database keeps as the job is none.
        OperationError: The database failed.
    """
    found = _the_one(store, wanted)
    job = _job(store, found)
    spec = None if job is None else job.spec
    eta = wanted.eta
    if eta is None:
        eta = DEFAULT_ETA if spec is None else spec.objective.energy_weight_percent / 100
    default_batch_size = wanted.default_batch_size
    if default_batch_size is None and spec is not None:
        default_batch_size = spec.batch_size.default
    return JobHistory(
        namespace=found.namespace,
        job_name=found.job_name,
        eta=eta,
        default_batch_size=default_batch_size,
        records=store.observations.of_job(found.job_uid),
        profiles=store.profiles.of_job(found.job_uid),
    )


def _the_one(store: Store, wanted: WantedJob) -> JobObservations:
    jobs = store.observations.jobs()
    found = [
        job
        for job in jobs
        if job.job_name == wanted.name
        and wanted.namespace in (None, job.namespace)
        and wanted.uid in (None, job.job_uid)
    ]
    name = wanted.name if wanted.namespace is None else f"{wanted.namespace}/{wanted.name}"
    name += "" if wanted.uid is None else f" of uid {wanted.uid}"
    if not found:
        there = _listed(jobs) or "none yet"
        raise UsageError(f"{store.name}: there are no recurrences of a job {name}; there are those of: {there}")
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
    try:
        job = RecurringTrainingJob.from_wire(stored.body)
    except ValidationError as error:
        raise InputError(
            f"{store.name}: RecurringTrainingJob {found.namespace}/{found.job_name}",
            f"an object that this version of Wattloop cannot read ({error.error_count()} fields)",
            "one that `wattloop run` of this version wrote",
        ) from error
    return job if job.metadata.uid == found.job_uid else None
