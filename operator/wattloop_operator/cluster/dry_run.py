"""Whether the API server takes a job's workload, found by a dry run once a generation, before anything is started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import RejectedError
from wattloop_operator.workloads.injection import TemplateError

logger = logging.getLogger(__name__)

REASON = "TemplateRejected"
READY = "Ready"
# Quotas, policies and webhooks change without the job's knowing.
RECHECK_SECONDS = 60.0
MAX_MESSAGE_CHARACTERS = 2048


@dataclass(frozen=True)
class Verdict:
    """What was found of one generation of a job.

    Attributes:
        generation: The generation.
        refusal: Why its workload is refused; empty: it is not.
        at: When it was found, on the monotonic clock.
    """

    generation: int | None
    refusal: str
    at: float


class DryRun:
    """What is known of every job's workload.

    Args:
        try_out: Has the server check the workload of a decision; raises `RejectedError` or `TemplateError`.
        clock: Monotonic seconds.
    """

    def __init__(
        self, try_out: Callable[[RecurringTrainingJob, TrainingRecurrence], None], clock: Callable[[], float]
    ) -> None:
        self._try_out = try_out
        self._clock = clock
        self._verdicts: dict[str, Verdict] = {}

    def of(self, job: RecurringTrainingJob, sample: Callable[[], TrainingRecurrence | None]) -> str:
        """Why the server refuses the workload of this job; empty where it takes it.

        Args:
            job: The job.
            sample: Returns a decision to try it with; None if nothing can start, so nothing can be refused.

        Raises:
            OperationError: The server could not be asked now.
        """
        known = self._verdicts.get(job.metadata.uid)
        generation = job.metadata.generation
        if known is not None and known.generation == generation:
            if not known.refusal or self._clock() - known.at < RECHECK_SECONDS:
                return known.refusal
        elif known is None and _was_accepted(job):
            return self._keep(job, "")
        decision = sample()
        if decision is None:
            return ""
        try:
            self._try_out(job, decision)
        except (RejectedError, TemplateError) as refusal:
            return self.refuse(job, str(refusal))
        return self._keep(job, "")

    def stands(self, job: RecurringTrainingJob) -> bool:
        """Whether a refusal of this generation is in mind."""
        known = self._verdicts.get(job.metadata.uid)
        return known is not None and known.generation == job.metadata.generation and bool(known.refusal)

    def refuse(self, job: RecurringTrainingJob, why: str) -> str:
        """Keep in mind that the server refused a workload of this generation; returns why."""
        logger.warning("%s/%s: its workload is refused: %s", job.metadata.namespace, job.metadata.name, why)
        return self._keep(job, why[:MAX_MESSAGE_CHARACTERS])

    def forget(self, job_uid: str) -> None:
        """Forget a job that is gone."""
        self._verdicts.pop(job_uid, None)

    def _keep(self, job: RecurringTrainingJob, refusal: str) -> str:
        self._verdicts[job.metadata.uid] = Verdict(job.metadata.generation, refusal, self._clock())
        return refusal


def _was_accepted(job: RecurringTrainingJob) -> bool:
    """Whether an operator before this one found the same generation acceptable."""
    status = job.status
    ready = next((each for each in status.conditions if each.type == READY), None)
    return ready is not None and status.observed_generation == job.metadata.generation and ready.reason != REASON
