"""Starts the tiny job, tells how it stands, and takes it away again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.api.conditions import Condition, ConditionStatus
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.result import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, MissingError, RefusedError
from wattloop_operator.cluster.resources import RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES

LOOK_SECONDS = 1.0
NOBODY = "the operator has not taken it up yet"
NO_OPERATOR = "is the operator running, and does it hold its Lease?"
NO_REPORT = (
    "its pod runs, but no report of it has reached the operator: can pods resolve and reach the URL that they are told "
    "(the chart's reporting.url), and do network policies and the certificate let them?"
)
# With these it could not start however long one waited.
REFUSALS = frozenset({"TemplateRefused"})


@dataclass(frozen=True)
class Check:
    """One check of a cluster.

    Attributes:
        api: The API server.
        tell: Says how it stands, a line at a time.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
    """

    api: ClusterApi
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = interruption.sleep

    def carry_out(self, job: Mapping[str, Any], patience_seconds: float) -> TrainingRecurrence:
        """Run the job's one recurrence; whatever happens, the job is gone afterwards.

        Args:
            job: Its manifest.
            patience_seconds: How long it may take.

        Returns:
            The recurrence, which has reached its target.

        Raises:
            OperationError: It has not, or the cluster does not take the job.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        namespace, name = str(job["metadata"]["namespace"]), str(job["metadata"]["name"])
        try:
            made = self.api.create(RECURRING_TRAINING_JOBS, job)
        except (MissingError, RefusedError) as error:
            raise OperationError(f"the RecurringTrainingJob {namespace}/{name} was refused: {error}") from error
        try:
            self.tell(f"made the RecurringTrainingJob {namespace}/{name}")
            return self._followed(namespace, name, self.clock() + patience_seconds)
        except MissingError as error:
            raise OperationError(
                f"somebody has deleted the RecurringTrainingJob {namespace}/{name}: {error}"
            ) from error
        except RefusedError as error:
            raise OperationError(f"the RecurringTrainingJob {namespace}/{name} cannot be followed: {error}") from error
        finally:
            self._delete(namespace, name, str(made["metadata"]["uid"]))

    def _delete(self, namespace: str, name: str, uid: str) -> None:
        try:
            self.api.delete(RECURRING_TRAINING_JOBS, namespace, name, uid)
        except (OperationError, RefusedError) as error:
            # What the check has found is worth more than that it left its job behind, which runs no second time.
            self.tell(f"delete the RecurringTrainingJob {namespace}/{name} by hand: {error}")
        else:
            self.tell(f"deleted the RecurringTrainingJob {namespace}/{name}")

    def _followed(self, namespace: str, name: str, give_up_at: float) -> TrainingRecurrence:
        told = ""
        while True:
            refusal = ""
            try:
                job, recurrence = self._look(namespace, name)
            except OperationError as error:
                # The API server may be away for a moment.
                state = str(error)
            else:
                if recurrence is not None and recurrence.status.result is not None:
                    return self._judged(recurrence)
                state, refusal = state_of(job, recurrence), _refusal(job)
            if state != told:
                self.tell(state)
                told = state
            if refusal:
                raise OperationError(f"the job cannot be started: {refusal}")
            if self.clock() >= give_up_at:
                hint = NO_OPERATOR if state == NOBODY else NO_REPORT if _is_silent(recurrence) else ""
                last = "; ".join(filter(None, (state, hint)))
                raise OperationError(f"it has not ended in time; the last that is known: {last}")
            self.sleep(LOOK_SECONDS)

    def _look(self, namespace: str, name: str) -> tuple[RecurringTrainingJob, TrainingRecurrence | None]:
        job = RecurringTrainingJob.from_wire(self.api.get(RECURRING_TRAINING_JOBS, namespace, name))
        found, _ = self.api.list(TRAINING_RECURRENCES, namespace=namespace, labels=f"wattloop.dev/job={name}")
        return job, TrainingRecurrence.from_wire(found[0]) if found else None

    def _judged(self, recurrence: TrainingRecurrence) -> TrainingRecurrence:
        status = recurrence.status
        self.tell(f"{recurrence.metadata.name}: {status.result}: {status.message}")
        if status.result is not Result.REACHED:
            raise OperationError(
                f"the recurrence {recurrence.metadata.name} ended with {status.result}: {status.message}; reports come "
                "from its pod to the operator's reporting API: look at the operator's log for them"
            )
        return recurrence


def _refusal(job: RecurringTrainingJob) -> str:
    return next((each.message for each in job.status.conditions if each.reason in REFUSALS), "")


def state_of(job: RecurringTrainingJob, recurrence: TrainingRecurrence | None) -> str:
    """How it stands, in a sentence."""
    if recurrence is None:
        return _first_trouble(job.status.conditions) or (NOBODY if not job.status.conditions else "waits for its start")
    status = recurrence.status
    if status.progress is not None:
        return f"{recurrence.metadata.name}: epoch {status.progress.epoch} is reported"
    return f"{recurrence.metadata.name}: {_first_trouble(status.conditions) or 'started'}"


def _is_silent(recurrence: TrainingRecurrence | None) -> bool:
    """Whether it runs and has reported nothing."""
    if recurrence is None or recurrence.status.progress is not None:
        return False
    runs = (each for each in recurrence.status.conditions if each.type == "Running")
    return any(each.status is ConditionStatus.TRUE for each in runs)


def _first_trouble(conditions: Iterable[Condition]) -> str:
    trouble = (each for each in conditions if each.status is ConditionStatus.FALSE and each.message)
    return next((f"{each.type} is False, {each.reason}: {each.message}" for each in trouble), "")
