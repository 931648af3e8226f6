"""Dry runs: whether the API server accepts a job's workload, checked once per generation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import RejectedError
from wattloop_operator.workloads.injection import TemplateError

logger = logging.getLogger(__name__)

REASON = "TemplateRejected"
READY = "Ready"
# Quotas, policies and webhooks change independently of the job.
RECHECK_SECONDS = 60.0


@dataclass(frozen=True)
class DryRunResult:
    """The result for one generation of a job.

    Attributes:
        generation: The generation.
        refusal: Why its workload is refused; empty if it is accepted.
        at: Time of the dry run on the monotonic clock.
    """

    generation: int | None
    refusal: str
    at: float


class DryRun:
    """The latest dry run of every job.

    Args:
        create: Has the server validate the workload of a decision; raises `RejectedError` or
            `TemplateError`.
        clock: Monotonic seconds.
    """

    def __init__(
        self, create: Callable[[RecurringTrainingJob, TrainingRecurrence], None], clock: Callable[[], float]
    ) -> None:
        self._create = create
        self._clock = clock
        self._results: dict[str, DryRunResult] = {}

    def refusal(self, job: RecurringTrainingJob, sample: Callable[[], TrainingRecurrence | None]) -> str:
        """Why the server refuses the workload of this job; empty if it accepts it.

        Args:
            job: The job.
            sample: Returns a decision for the dry run; None if nothing can start, so nothing can be
                refused.

        Raises:
            OperationError: The API server does not answer now.
        """
        known = self._results.get(job.metadata.uid)
        generation = job.metadata.generation
        if known is not None and known.generation == generation:
            if not known.refusal or self._clock() - known.at < RECHECK_SECONDS:
                return known.refusal
        elif known is None and _was_accepted(job):
            return self._record(job, "")
        decision = sample()
        if decision is None:
            return ""
        try:
            self._create(job, decision)
        except (RejectedError, TemplateError) as error:
            return self.refuse(job, str(error))
        return self._record(job, "")

    def is_refused(self, job: RecurringTrainingJob) -> bool:
        """Whether the latest result for this generation is a refusal."""
        known = self._results.get(job.metadata.uid)
        return known is not None and known.generation == job.metadata.generation and bool(known.refusal)

    def refuse(self, job: RecurringTrainingJob, reason: str) -> str:
        """Record that the server refused a workload of this generation; returns the recorded reason."""
        logger.warning("%s/%s: its workload is refused: %s", job.metadata.namespace, job.metadata.name, reason)
        return self._record(job, printable(reason))

    def forget(self, job_uid: str) -> None:
        """Drop the result of a deleted job."""
        self._results.pop(job_uid, None)

    def _record(self, job: RecurringTrainingJob, refusal: str) -> str:
        self._results[job.metadata.uid] = DryRunResult(job.metadata.generation, refusal, self._clock())
        return refusal


def _was_accepted(job: RecurringTrainingJob) -> bool:
    """Whether a previous operator process found the same generation accepted."""
    status = job.status
    ready = next((each for each in status.conditions if each.type == READY), None)
    return ready is not None and status.observed_generation == job.metadata.generation and ready.reason != REASON
