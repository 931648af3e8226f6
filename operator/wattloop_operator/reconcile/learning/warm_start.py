"""Warm starts: attempts that begin with the current model, and what they say about the others.

An attempt that begins with a trained model needs fewer epochs than one that begins without, at every batch size. So
warm and cold starts are two trainings, like two templates: the digest that distinguishes attempts differs, the
epochs of one count for the other only until they are found to differ, and its crashes do not count.
"""

from __future__ import annotations

import hashlib

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

DIGEST_BYTES = 16


def is_warm_start(job: RecurringTrainingJob) -> bool:
    """Whether the next attempt of a job begins with the current model: its user wants that, and there is one."""
    output = job.spec.output
    return output is not None and output.warm_start and job.status.published is not None


def training_digest(job: RecurringTrainingJob, *, warm_start: bool | None = None) -> str:
    """Digest of what an attempt trains: of the template, and whether it begins with the current model.

    Args:
        job: The job.
        warm_start: Whether it begins with that; None: as the next attempt does.
    """
    digest = job.spec.template.digest
    if not (is_warm_start(job) if warm_start is None else warm_start):
        return digest
    return hashlib.blake2b(f"warm start of {digest}".encode(), digest_size=DIGEST_BYTES).hexdigest()
