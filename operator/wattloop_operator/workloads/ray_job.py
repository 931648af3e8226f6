"""RayJob (ray.io/v1) of KubeRay: a Ray cluster for one program.

The program runs in the head's container, and its tasks in the head's and the workers': Ray gives them the environment
of their container. The pod that submits the program does not train.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.condition_phase import failure_of, reason_and_message, wait_of
from wattloop_operator.workloads.injection import Injection, TemplateError
from wattloop_operator.workloads.pod_state import Pod, time_of
from wattloop_operator.workloads.templated_kind import (
    PodTemplate,
    TemplatedKind,
    as_object,
    objects_in,
    pod_template_in,
    replicas_of,
    spec_of,
)
from wattloop_operator.workloads.workload_kind import ObservedPhase, Spec

RAY_CLUSTER = ("ray.io", "RayCluster")
# By status.jobDeploymentStatus. KubeRay ends a failed program with Failed, or with Complete and the job status FAILED.
ENDED = frozenset({"Complete", "Failed"})
RUNNING = frozenset({"Running"})
SUCCEEDED = "SUCCEEDED"
# Its pod could not submit the program, which has not failed by itself then.
SUBMISSION_FAILED = "SubmissionFailed"


class RayJob(TemplatedKind):
    """RayJobs do not retry by default. A cluster that stays after the end would keep its GPUs, so it is deleted."""

    between = frozenset({RAY_CLUSTER})
    place = "spec.rayClusterSpec.headGroupSpec.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `TemplatedKind`."""
        cluster = as_object(spec.get("rayClusterSpec"))
        head = pod_template_in(as_object(cluster.get("headGroupSpec")))
        if head is not None:
            yield PodTemplate(head)
        for group in objects_in(cluster.get("workerGroupSpecs")):
            found = pod_template_in(group)
            if found is not None:
                yield PodTemplate(found, replicas_of(group) * replicas_of(group, "numOfHosts"))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `TemplatedKind`."""
        spec.setdefault("backoffLimit", 0)
        if "deletionPolicy" not in spec:
            spec.setdefault("shutdownAfterJobFinishes", True)

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`."""
        if spec_of(template).get("clusterSelector"):
            raise TemplateError(
                "spec.template.workload.spec.clusterSelector runs the program in a cluster that exists already, whose "
                "pods cannot receive the batch size; use rayClusterSpec instead"
            )
        return super().spec(template, injection)

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        status, suspended = as_object(body.get("status")), bool(as_object(body.get("spec")).get("suspend"))
        program = as_object(status.get("rayJobInfo"))
        deployment, job = status.get("jobDeploymentStatus"), status.get("jobStatus")
        started = time_of(program.get("startTime")) or time_of(status.get("startTime"))
        ended = time_of(status.get("endTime")) or time_of(program.get("endTime"))
        text = reason_and_message(status)
        if deployment in ENDED and job == SUCCEEDED:
            return ObservedPhase(WorkloadPhase.SUCCEEDED, ended, started, message=text)
        if deployment in ENDED:
            cause = Failure.DISRUPTED if status.get("reason") == SUBMISSION_FAILED else Failure.CRASHED
            failure = failure_of(text or f"the Ray job ended with {printable(str(job))}", pods, cause)
            return ObservedPhase(WorkloadPhase.FAILED, ended, started, failure=failure)
        if deployment in RUNNING and not suspended:
            return ObservedPhase(WorkloadPhase.RUNNING, started, started, message=text)
        wait = wait_of(body, pods, suspended=suspended)
        return ObservedPhase(WorkloadPhase.PENDING, wait=wait, suspended=suspended)
