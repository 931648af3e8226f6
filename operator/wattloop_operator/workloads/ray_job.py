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
from wattloop_operator.workloads.condition_phase import (
    failed_with_first_pod,
    failure_of,
    reason_and_message,
    wait_of,
)
from wattloop_operator.workloads.injection import Injection, TemplateError
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    RAY_HEAD,
    RAY_NODE_LABEL,
    Pod,
    condition_of,
    time_of,
)
from wattloop_operator.workloads.shell_program import with_values
from wattloop_operator.workloads.templated_kind import (
    PodTemplate,
    TemplatedKind,
    as_object,
    objects_in,
    pod_template_in,
    replicas_of,
)
from wattloop_operator.workloads.workload_kind import ObservedPhase, Spec

RAY_CLUSTER = ("ray.io", "RayCluster")
# By status.jobDeploymentStatus. KubeRay ends a failed program with Failed, or with Complete and the job status FAILED.
ENDED = frozenset({"Complete", "Failed"})
RUNNING = "Running"
SUCCEEDED = "SUCCEEDED"
# The program has ended for good. The pod that submitted it may still run, or be started again to read its log.
PROGRAM_FAILED = frozenset({"FAILED", "STOPPED"})
# Its pod could not submit the program, or a user has stopped it: it has not failed by itself then.
SUBMISSION_FAILED, STOPPED = "SubmissionFailed", "STOPPED"


class RayJob(TemplatedKind):
    """RayJobs do not retry by default. A cluster that stays after the end would keep its GPUs, so it is deleted.

    KubeRay replaces failed pods, and the pod that submits the program submits it again to a new head. Neither can be
    switched off, so an attempt ends with its first failed pod, unless the user has chosen retries.
    """

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
        if not _retries(spec):
            # By default the kubelet starts the container of a head again, without its program.
            for each in self.pod_templates(spec):
                each.value["spec"].setdefault("restartPolicy", "Never")
        if "deletionPolicy" not in spec:
            spec.setdefault("shutdownAfterJobFinishes", True)

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`."""
        if template.spec.value.get("clusterSelector"):
            raise TemplateError(
                "spec.template.spec.clusterSelector runs the program in a cluster that exists already, whose "
                "pods cannot receive the batch size; use rayClusterSpec instead"
            )
        made = super().spec(template, injection)
        if isinstance(made.get("entrypoint"), str):
            made["entrypoint"] = with_values(made["entrypoint"], injection.variables)
        return made

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        spec, status = as_object(body.get("spec")), as_object(body.get("status"))
        deployment, job = status.get("jobDeploymentStatus"), status.get("jobStatus")
        program, suspended, retries = as_object(status.get("rayJobInfo")), bool(spec.get("suspend")), _retries(spec)
        started = time_of(program.get("startTime")) or time_of(status.get("startTime"))
        ended = time_of(status.get("endTime")) or time_of(program.get("endTime"))
        text, judged = reason_and_message(status), _judged_pods(spec, pods)
        if deployment in ENDED and job == SUCCEEDED:
            return ObservedPhase(WorkloadPhase.SUCCEEDED, ended, started, message=text)
        still_runs = deployment == RUNNING and not suspended
        if deployment in ENDED or (still_runs and job in PROGRAM_FAILED and not retries):
            blameless = status.get("reason") == SUBMISSION_FAILED or job == STOPPED
            cause = Failure.DISRUPTED if blameless else Failure.CRASHED
            failure = failure_of(text or f"the Ray job ended with {printable(str(job))}", judged, cause)
            return ObservedPhase(WorkloadPhase.FAILED, ended, started, failure=failure, may_run_again=still_runs)
        if still_runs:
            observed = ObservedPhase(WorkloadPhase.RUNNING, started, started, message=text)
        else:
            wait = wait_of(body, pods, suspended=suspended)
            observed = ObservedPhase(WorkloadPhase.PENDING, wait=wait, suspended=suspended)
        return observed if retries else failed_with_first_pod(observed, judged)


def _retries(spec: Mapping[str, Any]) -> bool:
    """Whether the user has chosen that KubeRay retries."""
    return bool(spec.get("backoffLimit"))


def _judged_pods(spec: Mapping[str, Any], pods: Sequence[Pod]) -> Sequence[Pod]:
    """The pods whose failure ends an attempt: Ray's autoscaler ends idle workers, and they look as if they had failed.

    A worker that Kubernetes disrupts counts in any case.
    """
    if not as_object(spec.get("rayClusterSpec")).get("enableInTreeAutoscaling"):
        return pods
    return [each for each in pods if _is_head(each) or condition_of(each, DISRUPTION_TARGET) is not None]


def _is_head(pod: Pod) -> bool:
    labels = as_object(as_object(pod.get("metadata")).get("labels"))
    return labels.get(RAY_NODE_LABEL) == RAY_HEAD
