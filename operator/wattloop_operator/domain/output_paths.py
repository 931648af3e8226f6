"""Where the files of an attempt are in the folder of a job's models."""

from __future__ import annotations

from wattloop_operator.api.meta import ObjectMeta

ATTEMPTS = "attempts"
UID_CHARACTERS = 8


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
