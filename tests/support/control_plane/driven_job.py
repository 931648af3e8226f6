"""A job that a test drives step by step, with an operator in the test's process."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubernetes.dynamic import DynamicClient

from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.job_manifest import job_manifest
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import (
    JOB,
    RECURRING_TRAINING_JOB,
    TRAINING_RECURRENCE,
    apply_object,
    get_object,
    list_objects,
)
from support.control_plane.training import Training
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.domain.names import JOB_LABEL, JobKey, recurrence_name, slot_of_request
from wattloop_operator.reconcile.learning.job_observations import observations
from wattloop_planner.observations import Observation


def await_job_end(cluster: DynamicClient, key: JobKey, name: str) -> None:
    """Wait until the Job of a recurrence has ended."""

    def over(jobs: list[Object]) -> bool:
        conditions = [each for job in jobs for each in job.get("status", {}).get("conditions", [])]
        return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in conditions)

    wait_until(
        cluster,
        JOB,
        over,
        f"the Job {key.namespace}/{name} to end",
        namespace=key.namespace,
        field_selector=f"metadata.name={name}",
    )


def recurrences_of_job(cluster: DynamicClient, key: JobKey) -> list[Object]:
    """The TrainingRecurrences of a job as they are now, by index and attempt."""
    items = list_objects(cluster, TRAINING_RECURRENCE, key.namespace, f"{JOB_LABEL}={key.name}")
    return sorted(items, key=lambda each: (each["spec"]["index"], each["spec"]["attempt"]))


def first_of(key: JobKey, attempt: int = 0) -> str:
    """Name of an attempt of a job's first recurrence, which is that of its workload, too."""
    return recurrence_name(key.name, 0, slot_of_request("first"), attempt)


def condition(thing: Object, kind: str) -> dict[str, Any]:
    """The condition of this type."""
    found: dict[str, Any] = next(each for each in thing["status"]["conditions"] if each["type"] == kind)
    return found


@dataclass
class DrivenJob:
    """A job that runs on request. Nothing happens before the test asks for it.

    Attributes:
        operator: The operator that reconciles it.
        kubelet: The node of its pods.
        cluster: A client with an administrator's rights.
        training_of: Returns the training in a running pod.
    """

    key: JobKey
    operator: InProcessOperator
    kubelet: Kubelet
    cluster: DynamicClient
    training_of: Callable[[Object], Training]

    def apply(self, **spec: Any) -> None:
        """Apply its manifest, with some fields of its spec replaced."""
        apply_object(self.cluster, job_manifest(self.key.name, **spec), self.key.namespace)

    def reconcile(self) -> datetime | None:
        """Reconcile it; returns when the operator would again."""
        return self.operator.reconcile(self.key)

    def begin(self, **spec: Any) -> None:
        """Apply and reconcile it."""
        self.apply(**spec)
        self.reconcile()

    def start(self, **spec: Any) -> Training:
        """Apply and reconcile it, and run the pod of its first attempt."""
        self.begin(**spec)
        return self.train()

    def name_of(self, attempt: int = 0, index: int = 0, request: str = "first") -> str:
        """Name of an attempt of a recurrence, which is that of its workload, too."""
        return recurrence_name(self.key.name, index, slot_of_request(request), attempt)

    def pending_pod(self, name: str = "") -> Object:
        """The pod of an attempt, by default of the first one, as its Job made it."""
        (pod,) = self.kubelet.pods_of_job(name or self.name_of(), self.key.namespace)
        return pod

    def train(self, name: str = "") -> Training:
        """Run the pod of an attempt, by default of the first one."""
        return self.training_of(self.kubelet.run(self.pending_pod(name)))

    def reach_target(self, training: Training) -> None:
        """Train until the target, and end the pod without an error."""
        training.reach_target()
        self.succeed(training)

    def succeed(self, training: Training) -> None:
        """End the pod of a training without an error, and reconcile."""
        self.kubelet.succeed(training.pod)
        self.after_end(training.environment.recurrence)

    def fail(self, training: Training, **how: Any) -> None:
        """End the pod of a training as `Kubelet.fail` does, and reconcile."""
        self.kubelet.fail(training.pod, **how)
        self.after_end(training.environment.recurrence)

    def after_end(self, name: str = "") -> datetime | None:
        """Wait until the Job of an attempt has ended, and reconcile."""
        await_job_end(self.cluster, self.key, name or self.name_of())
        return self.reconcile()

    @property
    def job(self) -> Object:
        """The RecurringTrainingJob as it is now."""
        return get_object(self.cluster, RECURRING_TRAINING_JOB, self.key.namespace, self.key.name)

    @property
    def recurrences(self) -> list[Object]:
        """Its TrainingRecurrences as they are now, by index and attempt."""
        return recurrences_of_job(self.cluster, self.key)

    @property
    def recurrence(self) -> Object:
        """Its only TrainingRecurrence."""
        (found,) = self.recurrences
        return found

    @property
    def results(self) -> list[str | None]:
        """The result of each attempt; None while it runs."""
        return [each["status"].get("result") for each in self.recurrences]

    @property
    def learned(self) -> tuple[Observation, ...]:
        """What the policy has learned from it."""
        return observations(self.operator.store.observations.of_name(self.key.namespace, self.key.name))
