"""RayJob (ray.io/v1) of KubeRay: a Ray cluster for one program.

The program runs in the head's container, and its tasks in the head's and the workers': Ray gives them the environment
of their container. The pod that submits the program does not train.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.injection import Injection, TemplateError
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    RAY_HEAD,
    RAY_NODE_LABEL,
    Pod,
    condition_of,
    time_of,
)
from wattloop_operator.workloads.workload_kind import (
    ObservedPhase,
    PodTemplate,
    Spec,
    WorkloadKind,
    as_object,
    failed_with_first_pod,
    failure_of,
    objects_in,
    pod_template_in,
    reason_and_message,
    replicas_of,
    wait_of,
)

RAY_CLUSTER = ("ray.io", "RayCluster")
# By status.jobDeploymentStatus. KubeRay ends a failed program with Failed, or with Complete and the job status FAILED.
ENDED = frozenset({"Complete", "Failed"})
RUNNING = "Running"
SUCCEEDED = "SUCCEEDED"
# The program has ended for good. The pod that submitted it may still run, or be started again to read its log.
PROGRAM_FAILED = frozenset({"FAILED", "STOPPED"})
# Its pod could not submit the program, or a user has stopped it: it has not failed by itself then.
SUBMISSION_FAILED, STOPPED = "SubmissionFailed", "STOPPED"


class RayJob(WorkloadKind):
    """RayJobs do not retry by default. A cluster that stays after the end would keep its GPUs, so it is deleted.

    KubeRay replaces failed pods, and the pod that submits the program submits it again to a new head. Neither can be
    switched off, so an attempt ends with its first failed pod, unless the user has chosen retries.
    """

    between = frozenset({RAY_CLUSTER})
    place = "spec.rayClusterSpec.headGroupSpec.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `WorkloadKind`."""
        cluster = as_object(spec.get("rayClusterSpec"))
        head = pod_template_in(as_object(cluster.get("headGroupSpec")))
        if head is not None:
            yield PodTemplate(head)
        for group in objects_in(cluster.get("workerGroupSpecs")):
            found = pod_template_in(group)
            if found is not None:
                yield PodTemplate(found, replicas_of(group) * replicas_of(group, "numOfHosts"))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `WorkloadKind`."""
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
    labels = [as_object(as_object(each.get("metadata")).get("labels")).get(RAY_NODE_LABEL) for each in pods]
    return [
        each
        for each, kind in zip(pods, labels, strict=True)
        if kind == RAY_HEAD or condition_of(each, DISRUPTION_TARGET) is not None
    ]


# Linux starts no program with a longer argument.
MAX_PROGRAM_BYTES = 128 * 1024
REFERENCE = r"(?P<dollars>(?<!\$)\$+)\((?P<name>WATTLOOP_[A-Z0-9_]+)\)"
# By the quote that is open: what a shell reads there as one, or changes the open quote. A comment ends with its line.
TOKENS = {
    "": re.compile(rf"""{REFERENCE}|\\(?:\n|[^$]\#*)|(?<![^\s;&|(<>])\#[^\n]*|(?P<quote>['"])"""),
    '"': re.compile(rf"""{REFERENCE}|\\[^$]|(?P<quote>")"""),
    "'": re.compile(rf"{REFERENCE}|(?P<quote>')"),
}


def with_values(program: str, variables: Mapping[str, str]) -> str:
    """A program with the values of Wattloop's variables, as Kubernetes puts them into the args of a container.

    The shell that would look them up is that of the pod that submits the program, which does not have them.

    Args:
        program: The program of a RayJob, for a shell.
        variables: The values, by name.

    Raises:
        TemplateError: It would be too long for Linux.

    Example:
        >>> with_values("train --batch $(WATTLOOP_BATCH_SIZE) --lr $(LR)", {"WATTLOOP_BATCH_SIZE": "64"})
        'train --batch 64 --lr $(LR)'
    """
    parts, room = [], MAX_PROGRAM_BYTES
    for part in _parts_with_values(program, variables):
        room -= len(part.encode(errors="surrogatepass"))
        if room < 0:
            raise TemplateError(
                f"spec.template.spec.entrypoint has more than {MAX_PROGRAM_BYTES} bytes with the values of "
                "Wattloop's variables; remove references: the program has the variables in its environment"
            )
        parts.append(part)
    return "".join(parts)


def _parts_with_values(program: str, variables: Mapping[str, str]) -> Iterator[str]:
    begin, open_quote = 0, ""
    while found := TOKENS[open_quote].search(program, begin):
        yield program[begin : found.start()]
        yield found[0] if found["name"] is None else _value(found, variables, open_quote)
        begin = found.end()
        if found["quote"] is not None:
            open_quote = "" if open_quote else found["quote"]
    yield program[begin:]


def _value(found: re.Match[str], variables: Mapping[str, str], open_quote: str) -> str:
    """The value of a variable that is referred to, as one word of the shell or as a part of one."""
    # Two dollars are one that refers to nothing.
    kept, refers = divmod(len(found["dollars"]), 2)
    if not refers or found["name"] not in variables:
        return "$" * (kept + refers) + f"({found['name']})"
    known = variables[found["name"]]
    quoted = shlex.quote(known)
    closes = "" if quoted == known else open_quote
    return "$" * kept + closes + quoted + closes
