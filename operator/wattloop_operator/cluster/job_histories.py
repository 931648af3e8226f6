"""Decides which history a job of the cluster goes on with, and refuses one that is not its own.

The author of a job may write its annotation. The recurrences that the job controls are the operator's, so what they
say comes first: a manifest of another cluster that is applied to a job with a history does not take it away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.domain.job_identity import (
    HISTORY_ANNOTATION,
    annotated_uid,
    annotation_text,
    controller_uid,
    history_uid,
)
from wattloop_operator.store.store_cache import StoreCache


@dataclass(frozen=True)
class KnownHistory:
    """The history of a job.

    Attributes:
        job: The job, with the annotation that states it.
        unannotated: Whether the object at the API server lacks this annotation.
        problem: Why the history that its annotation names is refused; empty if it is not.
    """

    job: RecurringTrainingJob
    unannotated: bool
    problem: str = ""


class JobHistories:
    """The histories of the jobs in the cache."""

    def __init__(self, cache: ObjectCache, records: StoreCache) -> None:
        self._cache = cache
        self._records = records
        # By the uid of a job's object: the uid of another history that was accepted for it.
        self._accepted: dict[str, str] = {}
        # The uids of the jobs whose annotation the API server refuses to write.
        self._unwritable: set[str] = set()

    def of(self, job: RecurringTrainingJob, recurrences: Iterable[TrainingRecurrence]) -> KnownHistory:
        """The history of a job.

        Args:
            job: The job as the API server has it.
            recurrences: The recurrences of its name.

        Raises:
            OperationError: The database failed.
        """
        metadata, problem = job.metadata, ""
        controlled = [each for each in recurrences if controller_uid(each) == metadata.uid]
        uid = max(controlled, key=lambda each: each.order).spec.job_ref.uid if controlled else annotated_uid(metadata)
        uid = uid or metadata.uid
        if uid != metadata.uid and not controlled and self._accepted.get(metadata.uid) != uid:
            problem = self._problem(job, uid)
            uid = metadata.uid if problem else uid
        if uid != metadata.uid:
            self._accepted[metadata.uid] = uid
        text = annotation_text(metadata, uid)
        if metadata.annotations.get(HISTORY_ANNOTATION) == text:
            return KnownHistory(job, unannotated=False)
        annotations = {**metadata.annotations, HISTORY_ANNOTATION: text}
        annotated = job.model_copy(update={"metadata": metadata.model_copy(update={"annotations": annotations})})
        return KnownHistory(annotated, metadata.uid not in self._unwritable, problem)

    def not_written(self, uid: str) -> None:
        """Note that the API server refuses to write the annotation of the job with this uid."""
        self._unwritable.add(uid)

    def forget(self, uid: str) -> str:
        """Drop what is known of a deleted job; returns the uid of its history."""
        self._unwritable.discard(uid)
        return self._accepted.pop(uid, uid)

    def _problem(self, job: RecurringTrainingJob, uid: str) -> str:
        """Why a job may not take over a history; empty if it may."""
        name, key = job.metadata.full_name, (job.metadata.namespace, job.metadata.name)
        others = (each.value for each in self._cache.jobs.all() if each.key != key)
        if any(uid in (each.metadata.uid, history_uid(each)) for each in others):
            return f"{name}: the annotation {HISTORY_ANNOTATION} names the history of another job; it starts without"
        records = self._records.of_job(uid).records
        if any((each.namespace, each.job_name) != key for each in records):
            return (
                f"{name}: the annotation {HISTORY_ANNOTATION} names a history that the database has under another "
                "name; it starts without"
            )
        return ""
