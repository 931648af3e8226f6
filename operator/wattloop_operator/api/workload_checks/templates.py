"""The Jobs and the pods of a job's template, and what of it is not checked here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import is_job, pod_templates
from wattloop_operator.api.workload_checks.fields import wrong_fields
from wattloop_operator.api.workload_checks.formats import Finding, wrong_annotations, wrong_labels
from wattloop_operator.api.workload_checks.jobs import wrong_job
from wattloop_operator.api.workload_checks.pods import wrong_pod

# A suggestion for each of thousands of unknown fields would take seconds.
MAX_FINDINGS = 201
JOB_SET = ("jobset.x-k8s.io", "JobSet")
# Groups whose workloads have whole pod templates, but no schema here. A TrainJob has only changes of its runtime's.
GROUPS_WITH_PODS = frozenset({"kubeflow.org", "ray.io", "batch.volcano.sh"})


def wrong_workload(template: Mapping[str, Any]) -> list[Finding]:
    """What the API server would refuse of the workload of a template of JSON types without a `wrong_type`.

    Rules across fields are checked if all fields have their types.

    Args:
        template: The template.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "train"}]}}
        >>> [each.found for each in wrong_workload({"spec": {"template": pod}})]
        ['no image']
    """
    return list(itertools.islice(_of_fields(template), MAX_FINDINGS)) or list(
        itertools.islice(_of_rules(template), MAX_FINDINGS)
    )


def _of_fields(template: Mapping[str, Any]) -> Iterator[Finding]:
    for path, job in _jobs(template):
        yield from wrong_fields(path, job, "JobSpec")
    for path, pod in _pods(template):
        yield from wrong_fields(path, pod, "PodTemplateSpec")


def _of_rules(template: Mapping[str, Any]) -> Iterator[Finding]:
    metadata = template.get("metadata") or {}
    yield from wrong_labels(("metadata", "labels"), metadata.get("labels") or {})
    yield from wrong_annotations(("metadata", "annotations"), metadata.get("annotations") or {})
    for path, job in _jobs(template):
        yield from wrong_job(path, job)
    for path, pod in _pods(template):
        yield from wrong_pod(path, pod)


def checked_part(template: Template) -> str:
    """What of a workload `wrong_workload` checks, as text; empty if it checks all of it.

    Example:
        >>> checked_part(Template(api_version="kubeflow.org/v1", kind="PyTorchJob", spec={}))
        'the pods of its PyTorchJob'
    """
    if template.is_job:
        return ""
    group, kind = template.api_version.partition("/")[0], template.kind
    if (group, kind) == JOB_SET:
        return f"the Jobs of its {kind}"
    return (
        f"the pods of its {kind}" if group in GROUPS_WITH_PODS else f"the types of what containers of its {kind} have"
    )


def _jobs(template: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    spec = template["spec"]
    if is_job(template):
        yield ("spec",), spec
    if _kind(template) != JOB_SET:
        return
    replicated = spec.get("replicatedJobs")
    for index, each in enumerate(replicated if isinstance(replicated, list) else ()):
        made = each.get("template") if isinstance(each, dict) else None
        job = made.get("spec") if isinstance(made, dict) else None
        if isinstance(job, dict):
            yield ("spec", "replicatedJobs", index, "template", "spec"), job


def _pods(template: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    if _kind(template)[0] in GROUPS_WITH_PODS:
        for path, pod in pod_templates(template["spec"]):
            yield ("spec", *path), pod


def _kind(template: Mapping[str, Any]) -> tuple[str, str]:
    return str(template.get("apiVersion")).partition("/")[0], str(template.get("kind"))
