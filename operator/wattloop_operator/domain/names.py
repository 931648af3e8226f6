"""Keys, labels and names of objects.

A recurrence's name follows from its job and slot. The name therefore acts as a lock: no slot can be
started twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

JOB_LABEL = "wattloop.dev/job"
RECURRENCE_LABEL = "wattloop.dev/recurrence"
RUN_REQUEST_PREFIX = "run-"


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
    """The slot of a run request. The same text always gives the same slot."""
    return RUN_REQUEST_PREFIX + hashlib.blake2b(run_request.encode(), digest_size=5).hexdigest()


def is_run_request(slot: str) -> bool:
    """Whether a slot is that of a run request rather than of a scheduled time.

    Example:
        >>> is_run_request(slot_of_request("now")), is_run_request("1772323200")
        (True, False)
    """
    return slot.startswith(RUN_REQUEST_PREFIX)


def recurrence_name(job_name: str, slot: str, attempt: int) -> str:
    """Name of the TrainingRecurrence, and of its workload.

    Example:
        >>> recurrence_name("digits", "1772323200", 0)
        'digits-1772323200-0'
    """
    return f"{job_name}-{slot}-{attempt}"


def slot_in_name(job_name: str, name: str) -> str:
    """The slot that a recurrence's name contains.

    Example:
        >>> slot_in_name("digits", "digits-1772323200-0")
        '1772323200'
    """
    return name.removeprefix(f"{job_name}-").rpartition("-")[0]
