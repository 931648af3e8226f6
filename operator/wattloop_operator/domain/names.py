"""Keys, labels and names of objects, and the folders of their models.

A recurrence's name follows from its job, index and slot. The name therefore acts as a lock: a start
that is repeated after a crash has the same index and slot. The index comes first and has leading
zeros, because kubectl lists objects by name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.meta import ObjectMeta

JOB_LABEL = "wattloop.dev/job"
RECURRENCE_LABEL = "wattloop.dev/recurrence"
RUN_REQUEST_PREFIX = "r"
INDEX_DIGITS = 5
# Of a scheduled time until the year 2286; a run request's slot has fewer.
SLOT_CHARACTERS = 10
# Names have room for three digits.
MAX_ATTEMPT = 999
INDEX = re.compile(rf"[0-9]{{{INDEX_DIGITS},}}-")
ATTEMPTS = "attempts"
UID_CHARACTERS = 8


@dataclass(frozen=True)
class JobKey:
    """Namespace and name of a RecurringTrainingJob."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def slot_of_time(moment: datetime) -> str:
    """The slot of a scheduled time: its Unix seconds.

    Example:
        >>> from datetime import UTC
        >>> slot_of_time(datetime(2026, 3, 1, tzinfo=UTC))
        '1772323200'
    """
    return str(int(moment.timestamp()))


def slot_of_request(run_request: str) -> str:
    """The slot of a run request. The same text always gives the same slot.

    Example:
        >>> slot_of_request("now")
        'rojhpb1d9'
    """
    digest = hashlib.blake2b(run_request.encode(), digest_size=5).digest()
    return RUN_REQUEST_PREFIX + base64.b32hexencode(digest).decode().lower()


def is_run_request(slot: str) -> bool:
    """Whether a slot is that of a run request rather than of a scheduled time.

    Example:
        >>> is_run_request(slot_of_request("now")), is_run_request("1772323200")
        (True, False)
    """
    return slot.startswith(RUN_REQUEST_PREFIX)


def recurrence_name(job_name: str, index: int, slot: str, attempt: int) -> str:
    """Name of the TrainingRecurrence, and of its workload.

    Example:
        >>> recurrence_name("digits", 7, "1772323200", 0)
        'digits-00007-1772323200-0'
    """
    return f"{job_name}-{index:0{INDEX_DIGITS}}-{slot}-{attempt}"


def slot_in_name(job_name: str, name: str) -> str:
    """The slot that a recurrence's name contains; names of older versions have no index.

    Example:
        >>> slot_in_name("digits", "digits-00007-1772323200-0"), slot_in_name("digits", "digits-1772323200-0")
        ('1772323200', '1772323200')
    """
    indexed_slot = name.removeprefix(f"{job_name}-").rpartition("-")[0]
    index = INDEX.match(indexed_slot)
    return indexed_slot if index is None else indexed_slot[index.end() :]


def index_in_name(job_name: str, name: str) -> int | None:
    """The index that a recurrence's name contains; names of older versions have none.

    Example:
        >>> index_in_name("digits", "digits-00007-1772323200-0")
        7
    """
    index = INDEX.match(name.removeprefix(f"{job_name}-"))
    return None if index is None else int(index[0].removesuffix("-"))


def attempt_output(directory: str, recurrence: ObjectMeta) -> str:
    """Folder or URL for the files of an attempt.

    It has a part of the uid: a job that is created again may have recurrences of the same names, and their files
    must not replace those of a published model.

    Args:
        directory: Folder or URL of the job's models.
        recurrence: The metadata of the attempt's TrainingRecurrence.

    Example:
        >>> attempt_output("/models", ObjectMeta(name="digits-1-0", uid="0f3a9c52-77aa-4d1e-8f15-1a0d8f2c9b11"))
        '/models/attempts/digits-1-0-0f3a9c52'
    """
    suffix = "" if recurrence.uid in ("", recurrence.name) else f"-{recurrence.uid[:UID_CHARACTERS]}"
    return f"{directory.rstrip('/')}/{attempt_path(f'{recurrence.name}{suffix}')}"


def attempt_path(folder: str) -> str:
    """Path of a folder of an attempt, relative to that of the job's models."""
    return f"{ATTEMPTS}/{folder}"
