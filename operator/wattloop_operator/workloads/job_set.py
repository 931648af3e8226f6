"""JobSet (jobset.x-k8s.io): groups of Jobs that train together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from wattloop.wire.launcher import FIRST_POD_VARIABLE, JOB_INDEX_VARIABLE, JOB_PODS_VARIABLE, PODS_VARIABLE
from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.workloads.injection import Injection
from wattloop_operator.workloads.kubernetes_job import switch_off_retries
from wattloop_operator.workloads.ownership import JOB
from wattloop_operator.workloads.pod_state import LATEST, Pod, parallelism, time_of
from wattloop_operator.workloads.workload_kind import (
    ObservedPhase,
    PhaseConditions,
    PodTemplate,
    Spec,
    WorkloadKind,
    as_object,
    objects_in,
    pod_template_in,
    replicas_of,
)

JOB_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
CONDITIONS = PhaseConditions(succeeded=frozenset({"Completed"}), failed=frozenset({"Failed"}))


class JobSet(WorkloadKind):
    """JobSets fail with their first Job by default. Their Jobs restart a pod six times by default, but none here."""

    between = frozenset({JOB})
    conditions = CONDITIONS
    place = "spec.replicatedJobs[].template.spec.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `WorkloadKind`."""
        for job, replicas in _jobs(spec):
            yield PodTemplate(job["template"], replicas * parallelism(job))

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`. The pods get their place among all pods, since each Job counts its own from 0."""
        spec = super().spec(template, injection)
        _number_pods(spec, injection.training_containers)
        return spec

    def switch_off_retries(self, spec: Spec) -> None:
        """See `WorkloadKind`."""
        for job, _ in _jobs(spec):
            switch_off_retries(job)

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        return _at_deadline(super().observe(body, pods), body, as_object(body.get("spec")))


def _at_deadline(observed: ObservedPhase, body: Mapping[str, Any], spec: Mapping[str, Any]) -> ObservedPhase:
    """The phase with a Job's own deadline as the cause of a failure for which no pod has another one.

    A JobSet says only which Job failed first, and a Job deletes its pods at its deadline.
    """
    failure, begun = observed.failure, _begun_at(body)
    if failure is None or failure.failure is not Failure.DISRUPTED or failure.at != LATEST:
        return observed
    status = as_object(body.get("status"))
    seconds = list(_deadlines(spec, status))
    if not seconds or status.get("restarts") or begun is None or observed.since is None:
        return observed
    if (observed.since - begun).total_seconds() < min(seconds):
        return observed
    text = f"a Job of it exceeded its activeDeadlineSeconds: {failure.message}"
    return replace(observed, failure=failure.caused_by(Failure.DEADLINE, text))


def _deadlines(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[int]:
    """The deadlines, in seconds, of the groups whose Jobs have not all succeeded: the others ended within theirs."""
    states = objects_in(status.get("replicatedJobsStatus"))
    succeeded = {each.get("name"): each.get("succeeded") for each in states}
    for group in objects_in(spec.get("replicatedJobs")):
        seconds = as_object(as_object(group.get("template")).get("spec")).get("activeDeadlineSeconds")
        if type(seconds) is int and succeeded.get(group.get("name")) != replicas_of(group):
            yield seconds


def _begun_at(body: Mapping[str, Any]) -> datetime | None:
    conditions = objects_in(as_object(body.get("status")).get("conditions"))
    resumed = (each.get("lastTransitionTime") for each in conditions if each.get("type") == "Suspended")
    return time_of(next(resumed, None) or as_object(body.get("metadata")).get("creationTimestamp"))


def _number_pods(spec: Spec, names: Sequence[str] | None) -> None:
    groups = [(PodTemplate(job["template"]), replicas, parallelism(job)) for job, replicas in _jobs(spec)]
    trains = [each for each in groups if each[0].training_containers(names)]
    total, first = sum(replicas * pods for _, replicas, pods in trains), 0
    if total <= 1:
        return
    for pod, replicas, pods in trains:
        values = {PODS_VARIABLE: total, FIRST_POD_VARIABLE: first, JOB_PODS_VARIABLE: pods}
        variables: list[dict[str, Any]] = [{"name": name, "value": str(value)} for name, value in values.items()]
        variables.append({"name": JOB_INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": JOB_INDEX}}})
        for container in pod.value["spec"]["containers"]:
            if container.get("name") in pod.training_containers(names):
                container["env"] = variables + container["env"]
        first += replicas * pods


def _jobs(spec: Mapping[str, Any]) -> Iterator[tuple[Spec, int]]:
    for group in objects_in(spec.get("replicatedJobs")):
        job = as_object(as_object(group.get("template")).get("spec"))
        if pod_template_in(job) is not None:
            yield job, replicas_of(group)
