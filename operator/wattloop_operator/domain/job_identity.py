"""Which history a job goes on with: the UID that its recurrences and its rows in the store have; and what it controls.

It is the UID of the job's first object. An annotation keeps it, because every backup of an object has its annotations:
an object that is restored, here or in another cluster, has a new UID and no status. The namespace and the name are part
of it, so that a copy of a manifest under another name has no history.
"""

from __future__ import annotations

import re

from wattloop_operator.api.meta import ObjectMeta, OwnerReference
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence

HISTORY_ANNOTATION = "wattloop.dev/history"
MAX_UID_CHARACTERS = 64
_UID = re.compile(rf"[0-9A-Za-z-]{{1,{MAX_UID_CHARACTERS}}}")


def annotation_text(metadata: ObjectMeta, uid: str) -> str:
    """The annotation of a job with this history.

    Example:
        >>> annotation_text(ObjectMeta(name="digits", namespace="team"), "0f3a9c52")
        'team/digits/0f3a9c52'
    """
    return f"{metadata.namespace}/{metadata.name}/{uid}"


def annotated_uid(metadata: ObjectMeta) -> str:
    """The UID in the annotation of a job; empty if there is none, or if it is that of another name.

    Example:
        >>> annotations = {HISTORY_ANNOTATION: "team/digits/0f3a9c52"}
        >>> annotated_uid(ObjectMeta(name="digits", namespace="team", annotations=annotations))
        '0f3a9c52'
        >>> annotated_uid(ObjectMeta(name="copy", namespace="team", annotations=annotations))
        ''
    """
    text = metadata.annotations.get(HISTORY_ANNOTATION, "")
    uid = text.removeprefix(annotation_text(metadata, ""))
    return uid if uid != text and _UID.fullmatch(uid) else ""


def history_uid(job: RecurringTrainingJob) -> str:
    """The UID of a job's history: that of its annotation, and without one its own."""
    return annotated_uid(job.metadata) or job.metadata.uid


def is_restored(job: RecurringTrainingJob) -> bool:
    """Whether the job's object is another one than its history began with."""
    return history_uid(job) != job.metadata.uid


def is_unseen_restored(job: RecurringTrainingJob) -> bool:
    """Whether the job was restored without its status, and no operator has written one since."""
    return is_restored(job) and job.status.observed_generation is None


def owner_of(job: RecurringTrainingJob) -> OwnerReference:
    """The owner reference by which Kubernetes deletes a recurrence with its job."""
    return OwnerReference(
        api_version=job.api_version,
        kind=job.kind,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def controller_uid(recurrence: TrainingRecurrence) -> str:
    """The UID of the object that controls a recurrence; empty if none does."""
    return next((each.uid for each in recurrence.metadata.owner_references if each.controller), "")


def is_shown(job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> bool:
    """Whether a recurrence is one of the job's attempts.

    One that was restored without its status, and so without a controller, is none: it would look as if it ran.
    """
    if recurrence.spec.job_ref.uid != history_uid(job):
        return False
    return recurrence.status.result is not None or controller_uid(recurrence) == job.metadata.uid
