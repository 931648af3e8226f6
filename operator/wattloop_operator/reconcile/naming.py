"""Names that are locks: a recurrence's name follows from its job and slot, so no slot can be started twice."""

from __future__ import annotations

import hashlib
from datetime import datetime

RUN_REQUEST_PREFIX = "run-"


def slot_of_time(moment: datetime) -> str:
    """The slot of a scheduled time: its Unix seconds.

    Example:
        >>> from datetime import UTC
        >>> slot_of_time(datetime(2026, 3, 1, tzinfo=UTC))
        '1772323200'
    """
    return str(int(moment.timestamp()))


def slot_of_request(run_request: str) -> str:
    """The slot of a run request: the same text is the same slot for ever."""
    return RUN_REQUEST_PREFIX + hashlib.blake2b(run_request.encode(), digest_size=5).hexdigest()


def recurrence_name(job_name: str, slot: str, attempt: int) -> str:
    """Name of the TrainingRecurrence, and of its workload.

    Example:
        >>> recurrence_name("digits", "1772323200", 0)
        'digits-1772323200-0'
    """
    return f"{job_name}-{slot}-{attempt}"


def slot_in_name(job_name: str, name: str) -> str:
    """The slot that a recurrence's name was made from.

    Example:
        >>> slot_in_name("digits", "digits-1772323200-0")
        '1772323200'
    """
    return name.removeprefix(f"{job_name}-").rpartition("-")[0]
