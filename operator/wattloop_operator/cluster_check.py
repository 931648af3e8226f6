"""Runs one small recurrence in a cluster, to check that all parts of Wattloop work there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.model import API_VERSION
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    DEPLOYMENTS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    ClusterApi,
    NotFoundError,
    RejectedError,
)
from wattloop_operator.workloads.controllers import version_problems, version_text, versions_of

POLL_SECONDS = 1.0
NOT_PROCESSED = "the operator has not processed the job yet"
OPERATOR_HINT = "is the operator running, and does it hold its Lease?"
REPORT_HINT = (
    "its pod runs, but the operator has received no report from it: check that pods can resolve and reach the URL of "
    "the reporting API (the chart's reporting.url), and that network policies and the certificate allow it"
)
VERSIONS_NOT_SEEN = (
    "the versions of Kueue, Trainer and JobSet are not compared: this user may not list Deployments of all namespaces"
)
# Reasons of conditions with which the job never starts.
PERMANENT_REASONS = frozenset({"TemplateRejected"})
# Two epochs without work.
TRAINING_SCRIPT = """\
from wattloop import Run

with Run() as run:
    for epoch in run.epochs():
        run.report(metric=(epoch + 1) / 2)
"""


def check_job(
    namespace: str, name: str, image: str, *, pull_policy: str = "IfNotPresent", pull_secrets: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the manifest of a job with one recurrence of two epochs that needs no GPU.

    Args:
        namespace: Namespace of the job.
        name: Name of the job.
        image: Image with Python and Wattloop's client, such as the operator's.
        pull_policy: Pull policy of the image.
        pull_secrets: Names of the namespace's secrets to pull the image with.
    """
    container = {
        "name": "train",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["python3", "-c", TRAINING_SCRIPT],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": secret} for secret in pull_secrets],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": RecurringTrainingJob.resource.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "runRequest": "check",
            "maxRecurrences": 1,
            "objective": {"target": {"metric": "progress", "threshold": "1"}, "maxEpochs": 4},
            "batchSize": {"default": 1, "candidates": [1]},
            "mode": "Fixed",
            "power": {"mode": "None"},
            "retries": 0,
            "template": {"spec": {"template": {"spec": pod}}},
        },
    }


@dataclass(frozen=True)
class ClusterCheck:
    """One check of a cluster.

    Attributes:
        api: The API server.
        show: Shows a line about the state of the check.
        clock: Monotonic seconds.
        sleep: Waits for a number of seconds.
    """

    api: ClusterApi
    show: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = interruption.sleep

    def run(self, job: Mapping[str, Any], timeout_seconds: float) -> TrainingRecurrence:
        """Run the job's one recurrence, and delete the job in any case.

        Args:
            job: Manifest of the job.
            timeout_seconds: Time limit of the recurrence.

        Returns:
            The recurrence, which has reached its target.

        Raises:
            OperationError: The recurrence missed its target or the time limit, the cluster rejected the job, or
                versions of controllers do not fit together.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        namespace, name = str(job["metadata"]["namespace"]), str(job["metadata"]["name"])
        problems = self._version_problems()
        try:
            created = self.api.create(RECURRING_TRAINING_JOBS, job)
        except (NotFoundError, RejectedError) as error:
            raise OperationError(f"the RecurringTrainingJob {namespace}/{name} was rejected: {error}") from error
        try:
            self.show(f"created the RecurringTrainingJob {namespace}/{name}")
            recurrence = self._wait(namespace, name, self.clock() + timeout_seconds)
        except NotFoundError as error:
            raise OperationError(
                f"the RecurringTrainingJob {namespace}/{name} was deleted during the check: {error}"
            ) from error
        except RejectedError as error:
            raise OperationError(f"the RecurringTrainingJob {namespace}/{name} cannot be read: {error}") from error
        finally:
            self._delete(namespace, name, str(created["metadata"]["uid"]))
        if problems:
            raise OperationError(f"a training runs, but {'; '.join(problems)}; see docs/kueue.md")
        return recurrence

    def _version_problems(self) -> list[str]:
        """Which versions of controllers do not fit together, as far as the user may list their Deployments."""
        try:
            deployments, _ = self.api.list(DEPLOYMENTS)
        except (NotFoundError, OperationError, RejectedError):
            self.show(VERSIONS_NOT_SEEN)
            return []
        versions = versions_of(deployments)
        if versions:
            self.show(f"found {version_text(versions)}")
        return list(version_problems(versions))

    def _delete(self, namespace: str, name: str, uid: str) -> None:
        try:
            self.api.delete(RECURRING_TRAINING_JOBS, namespace, name, uid)
        except (OperationError, RejectedError) as error:
            # The result of the check matters more than a remaining job, which runs no second time.
            self.show(f"delete the RecurringTrainingJob {namespace}/{name} manually: {error}")
        else:
            self.show(f"deleted the RecurringTrainingJob {namespace}/{name}")

    def _wait(self, namespace: str, name: str, deadline: float) -> TrainingRecurrence:
        shown = ""
        recurrence: TrainingRecurrence | None = None
        while True:
            failure = ""
            try:
                job, recurrence = self._read(namespace, name)
            except OperationError as error:
                # The API server may be unavailable for a moment.
                state = str(error)
            else:
                if recurrence is not None and recurrence.status.result is not None:
                    return self._evaluated(recurrence)
                state, failure = check_state_text(job, recurrence), _permanent_failure(job)
            if state != shown:
                self.show(state)
                shown = state
            if failure:
                raise OperationError(f"the job cannot be started: {failure}")
            if self.clock() >= deadline:
                hint = OPERATOR_HINT if state == NOT_PROCESSED else REPORT_HINT if _is_silent(recurrence) else ""
                raise OperationError(
                    f"the recurrence has not ended in time; its last state: {'; '.join(filter(None, (state, hint)))}"
                )
            self.sleep(POLL_SECONDS)

    def _read(self, namespace: str, name: str) -> tuple[RecurringTrainingJob, TrainingRecurrence | None]:
        job = RecurringTrainingJob.from_wire(self.api.get(RECURRING_TRAINING_JOBS, namespace, name))
        recurrences, _ = self.api.list(TRAINING_RECURRENCES, namespace=namespace, labels=f"wattloop.dev/job={name}")
        return job, TrainingRecurrence.from_wire(recurrences[0]) if recurrences else None

    def _evaluated(self, recurrence: TrainingRecurrence) -> TrainingRecurrence:
        status = recurrence.status
        self.show(f"{recurrence.metadata.name}: {status.result}: {status.message}")
        if status.result is not Result.REACHED:
            raise OperationError(
                f"the recurrence {recurrence.metadata.name} ended with {status.result}: {status.message}; its pod "
                "sends reports to the operator's reporting API: see the operator's log for them"
            )
        return recurrence


def check_state_text(job: RecurringTrainingJob, recurrence: TrainingRecurrence | None) -> str:
    """Describe the state of the check in a sentence."""
    if recurrence is None:
        waiting = "waits for its start" if job.status.conditions else NOT_PROCESSED
        return _first_false(job.status.conditions) or waiting
    status = recurrence.status
    if status.progress is not None:
        return f"{recurrence.metadata.name}: epoch {status.progress.epoch} is reported"
    return f"{recurrence.metadata.name}: {_first_false(status.conditions) or 'started'}"


def _permanent_failure(job: RecurringTrainingJob) -> str:
    return next((each.message for each in job.status.conditions if each.reason in PERMANENT_REASONS), "")


def _is_silent(recurrence: TrainingRecurrence | None) -> bool:
    """Whether the recurrence runs and has reported nothing."""
    if recurrence is None or recurrence.status.progress is not None:
        return False
    running = (each for each in recurrence.status.conditions if each.type == "Running")
    return any(each.status is ConditionStatus.TRUE for each in running)


def _first_false(conditions: Iterable[Condition]) -> str:
    """Describe the first condition that is False and has a message."""
    failing = (each for each in conditions if each.status is ConditionStatus.FALSE and each.message)
    return next((f"{each.type} is False, {each.reason}: {each.message}" for each in failing), "")
