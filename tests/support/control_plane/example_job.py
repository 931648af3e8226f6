"""The examples of each kind of workload as jobs that a test drives, on the real controllers of the kinds."""

from dataclasses import dataclass, replace
from typing import Any

import yaml

from support.control_plane.chart import REPOSITORY
from support.control_plane.driven_job import DrivenJob
from support.control_plane.kind_controller import (
    JOB_SET_CONTROLLER,
    PYTORCH_JOB_CONTROLLER,
    PYTORCH_JOB_CONTROLLER_1_9,
    RAY_JOB_CONTROLLER,
    TRAIN_JOB_CONTROLLER,
    TRAIN_JOB_CONTROLLER_2_1,
    TRAIN_JOB_CONTROLLER_2_3,
    KindController,
)
from support.control_plane.objects import POD, apply_object, list_objects
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.domain.names import RECURRENCE_LABEL, JobKey
from wattloop_operator.workloads.kinds import kind_named

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Example:
    """What tests need to know of a kind.

    Attributes:
        pods: Number of pods of its workload.
        controllers: Its controllers beside those of Kubernetes.
        policy: Place in the spec of `suspend` and `ttlSecondsAfterFinished`.
        deadline: Place in the spec of `activeDeadlineSeconds`.
        is_submitted: Whether a pod of its own submits the program to the others, and ends with it.
    """

    pods: int
    controllers: tuple[KindController, ...] = ()
    policy: Place = ()
    deadline: Place = ()
    is_submitted: bool = False


_PYTORCH_JOB = Example(2, (PYTORCH_JOB_CONTROLLER,), policy=("runPolicy",), deadline=("runPolicy",))
# By the name of the manifest in examples/workloads, `@` and a version follow if a controller is tried in several.
EXAMPLES = {
    "job": Example(1),
    "job-set": Example(2, (JOB_SET_CONTROLLER,), deadline=("replicatedJobs", 0, "template", "spec")),
    "train-job": Example(2, (JOB_SET_CONTROLLER, TRAIN_JOB_CONTROLLER)),
    "pytorch-job": _PYTORCH_JOB,
    "ray-job": Example(2, (RAY_JOB_CONTROLLER,), is_submitted=True),
    # The last ones, as their controllers take the place of others.
    "train-job@2.3": Example(2, (JOB_SET_CONTROLLER, TRAIN_JOB_CONTROLLER_2_3)),
    "train-job@2.1": Example(2, (JOB_SET_CONTROLLER, TRAIN_JOB_CONTROLLER_2_1)),
    "pytorch-job@1.9": replace(_PYTORCH_JOB, controllers=(PYTORCH_JOB_CONTROLLER_1_9,)),
}
_MANIFESTS = REPOSITORY / "examples" / "workloads"
_ENDED = {"Succeeded", "Failed"}


@dataclass
class ExampleJob:
    """A job whose workload is of one kind.

    Attributes:
        manifest: Its manifest, as in examples/workloads, but it runs on request.
    """

    driven: DrivenJob
    manifest: dict[str, Any]
    example: Example

    def set(self, place: Place, **fields: Any) -> None:
        """Set fields of an object inside of the spec of its workloads; not yet applied."""
        target = self.manifest["spec"]["template"]["spec"]
        for step in place:
            target = target[step] if isinstance(step, int) else target.setdefault(step, {})
        target.update(fields)

    def begin(self) -> None:
        """Apply and reconcile it."""
        apply_object(self.driven.cluster, self.manifest, self.driven.key.namespace)
        self.driven.reconcile()

    @property
    def kind(self) -> tuple[str, str]:
        """API version and kind of its workloads."""
        template = self.manifest["spec"]["template"]
        return template.get("apiVersion", "batch/v1"), template.get("kind", "Job")

    def pods_of(self, attempt: int = 0) -> list[Object]:
        """Wait for the pods of an attempt that have not ended."""
        name = self.driven.name_of(attempt)

        def active(pods: list[Object]) -> list[Object] | None:
            found = running(pods)
            return found if len(found) == self.example.pods else None

        return wait_until(
            self.driven.cluster,
            POD,
            active,
            f"{self.example.pods} pods of {name}",
            namespace=self.driven.key.namespace,
            label_selector=f"{RECURRENCE_LABEL}={name}",
        )

    def run(self, attempt: int = 0) -> list[Object]:
        """Run the pods of an attempt, and reconcile."""
        pods = [self.driven.kubelet.run(pod) for pod in self.pods_of(attempt)]
        if self.example.is_submitted:
            self.driven.kubelet.run(self.submitter(attempt))
        self.driven.reconcile()
        return pods

    def submitter(self, attempt: int = 0) -> Object:
        """Wait for the pod that submits the program of an attempt."""
        (pod,) = self.driven.kubelet.pods_of_job(self.driven.name_of(attempt), self.driven.key.namespace)
        return pod

    def succeed(self, pods: list[Object], attempt: int = 0) -> None:
        """End pods without an error, the first one last: with its master, a PyTorchJob ends, and the other pods go.

        The pods of a Ray cluster outlive the program.
        """
        for pod in [self.submitter(attempt)] if self.example.is_submitted else reversed(pods):
            self.driven.kubelet.succeed(pod)

    def fail(self, pod: Object) -> None:
        """End a pod by exit code 3."""
        self._notice(self.driven.kubelet.fail(pod, exit_code=3))

    def preempt(self, pod: Object) -> None:
        """End a pod as the scheduler does for one of higher priority."""
        self._notice(self.driven.kubelet.preempt(pod))

    def _notice(self, ended: Object) -> None:
        """Show the operator a pod that its kind's controller deletes at once, as its watch does."""
        if self.example.is_submitted:
            self.driven.operator.cache.put_pod(ended)

    def await_end(self, attempt: int = 0) -> None:
        """Wait until the workload of an attempt has ended as Wattloop reads it, and reconcile."""
        namespace, name = self.driven.key.namespace, self.driven.name_of(attempt)

        def ended(bodies: list[Object]) -> bool:
            pods = list_objects(self.driven.cluster, ("v1", "Pod"), namespace, f"{RECURRENCE_LABEL}={name}")
            if self.example.is_submitted:
                pods += [each.value for each in self.driven.operator.cache.pods.of_group((namespace, name))]
            return any(kind_named(*self.kind).observe(body, pods).phase.ended for body in bodies)

        wait_until(
            self.driven.cluster,
            self.kind,
            ended,
            f"{self.kind[1]} {name} to end",
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )
        self.driven.reconcile()

    def await_deletion(self, attempt: int = 0) -> None:
        """Wait until the workload of an attempt is gone, and reconcile."""
        name = self.driven.name_of(attempt)
        wait_until(
            self.driven.cluster,
            self.kind,
            lambda found: not found,
            f"{self.kind[1]} {name} to be deleted",
            namespace=self.driven.key.namespace,
            field_selector=f"metadata.name={name}",
        )
        self.driven.reconcile()

    def workloads(self) -> list[str]:
        """Names of the workloads that exist and are not being deleted."""
        found = list_objects(self.driven.cluster, self.kind, self.driven.key.namespace, "wattloop.dev/job")
        return sorted(each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"])


def example_job(name: str, driven: DrivenJob, **spec: Any) -> ExampleJob:
    """The job of an example, which runs on request, with some fields of its spec replaced; not yet applied.

    Args:
        driven: A job with the operator and in the namespace of this one.
    """
    path = _MANIFESTS / f"{name.partition('@')[0]}.yaml"
    manifest: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    manifest["spec"].pop("schedule", None)
    manifest["spec"] |= {"runRequest": "first", **spec}
    key = JobKey(driven.key.namespace, manifest["metadata"]["name"])
    return ExampleJob(replace(driven, key=key), manifest, EXAMPLES[name])


def running(pods: list[Object]) -> list[Object]:
    """The pods that have not ended and are not being deleted."""
    return [
        pod for pod in pods if pod["status"].get("phase") not in _ENDED and "deletionTimestamp" not in pod["metadata"]
    ]
