"""A Job: its numbers, its policies, and what of them excludes what; and the Jobs and pods of a job's template."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import is_job, pod_templates
from wattloop_operator.api.workload_checks.fields import wrong_fields
from wattloop_operator.api.workload_checks.formats import (
    EXPECTED_QUALIFIED,
    Finding,
    ValueRule,
    is_not_negative,
    is_qualified,
    is_subdomain,
    wrong,
    wrong_annotations,
    wrong_labels,
    wrong_values,
)
from wattloop_operator.api.workload_checks.pods import wrong_pod, wrong_selector

MAX_INDEXED = 100_000
INDEXES = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")
MAX_POLICY_RULES = 20
RULES: tuple[ValueRule, ...] = (
    *(
        (name, is_not_negative, "at least 0")
        for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex")
    ),
    ("maxFailedIndexes", is_not_negative, "at least 0"),
    ("ttlSecondsAfterFinished", is_not_negative, "at least 0"),
    ("podFailurePolicy.rules[].onPodConditions[].type", is_qualified, EXPECTED_QUALIFIED),
)
MAX_EXIT_CODES = 255
# Labels that the API server sets itself: of a copy of a Job, they name another one.
SET_BY_SERVER = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
# A suggestion for each of thousands of unknown fields would take seconds.
MAX_FINDINGS = 201
JOB_SET = ("jobset.x-k8s.io", "JobSet")
# Groups whose workloads have whole pod templates, but no schema here. A TrainJob has only changes of its runtime's.
GROUPS_WITH_PODS = frozenset({"kubeflow.org", "ray.io", "batch.volcano.sh"})


def _wrong_job(path: Path, job: dict[str, Any]) -> Iterator[Finding]:
    """What the API server refuses of the spec of a Job, whose fields have their types.

    A restartPolicy that it does not name is Never.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "train", "image": "a"}]}}
        >>> job = {"completionMode": "Indexed", "parallelism": 2, "template": pod}
        >>> [each.found for each in _wrong_job((), job)]
        ['no completions']
    """
    yield from wrong_values(path, job, *RULES)
    yield from _wrong_indexes(path, job)
    yield from _wrong_selector(path, job)
    policy = job["template"]["spec"].get("restartPolicy", "Never")
    place: Path = (*path, "template", "spec", "restartPolicy")
    if policy in ("", "Always"):
        yield wrong(place, policy, "Never or OnFailure, as for the pods of any Job")
    elif policy != "Never" and job.get("podFailurePolicy") is not None:
        yield wrong(place, policy, "Never beside podFailurePolicy")
    if job.get("podFailurePolicy") is not None:
        yield from _wrong_failure_policy((*path, "podFailurePolicy"), job)
        if (job.get("podReplacementPolicy") or "Failed") != "Failed":
            yield wrong((*path, "podReplacementPolicy"), job["podReplacementPolicy"], "Failed beside podFailurePolicy")
    manager = job.get("managedBy")
    if manager is not None:
        domain, slash, name = manager.partition("/")
        if not slash or not name or not is_subdomain(domain) or len(manager) > 63:
            yield wrong((*path, "managedBy"), manager, "a domain and a path, such as team.example/controller")
    yield from wrong_pod((*path, "template"), job["template"])


def _wrong_indexes(path: Path, job: dict[str, Any]) -> Iterator[Finding]:
    completions, failed = job.get("completions"), job.get("maxFailedIndexes")
    if failed is not None and job.get("backoffLimitPerIndex") is None:
        yield Finding(path, "no backoffLimitPerIndex", "backoffLimitPerIndex beside maxFailedIndexes")
    if job.get("completionMode") != "Indexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if job.get(name) is not None:
                yield wrong((*path, name), job[name], "completionMode: Indexed beside it")
        return
    if completions is None and job.get("parallelism") is not None:
        yield Finding(path, "no completions", "completions with completionMode Indexed")
    elif completions is not None and failed is not None and failed > completions:
        yield wrong((*path, "maxFailedIndexes"), failed, f"at most completions, {completions}")
    if (job.get("parallelism") or 0) > MAX_INDEXED:
        yield wrong((*path, "parallelism"), job["parallelism"], f"at most {MAX_INDEXED} with completionMode Indexed")
    rules = (job.get("successPolicy") or {}).get("rules") or ()
    for index, rule in enumerate(rules):
        if rule.get("succeededCount") is None and rule.get("succeededIndexes") is None:
            place = (*path, "successPolicy", "rules", index)
            yield Finding(place, "neither of both", "succeededIndexes, succeededCount, or both")
        text, count, most = rule.get("succeededIndexes"), rule.get("succeededCount"), completions
        if text:
            most = _number_of_indexes(text, completions or 0)
            if most is None:
                place = (*path, "successPolicy", "rules", index, "succeededIndexes")
                yield wrong(place, text, f"indexes below completions, {completions}, in ascending order, such as 0,2-3")
        if count is not None and (count < 1 or (most is not None and count > most)):
            place = (*path, "successPolicy", "rules", index, "succeededCount")
            yield wrong(place, count, f"from 1 to {most}, the number of {'indexes' if text else 'completions'}")


def _number_of_indexes(text: str, completions: int) -> int | None:
    """How many indexes a list such as ``0,2-3`` has; None if it is not in order or has one of no pod."""
    if INDEXES.fullmatch(text) is None:
        return None
    ranges = [[int(number) for number in part.split("-")] for part in text.split(",")]
    numbers = [number for each in ranges for number in each]
    if numbers != sorted(set(numbers)) or numbers[-1] >= completions:
        return None
    return sum(each[-1] - each[0] + 1 for each in ranges)


def _wrong_selector(path: Path, job: dict[str, Any]) -> Iterator[Finding]:
    selector = job.get("selector")
    labels = (job["template"].get("metadata") or {}).get("labels") or {}
    yield from wrong_selector((*path, "selector"), selector or {})
    if job.get("manualSelector"):
        if selector is None:
            yield Finding(path, "no selector", "selector beside manualSelector: true")
        missing = [
            f"{key}={value}"
            for key, value in ((selector or {}).get("matchLabels") or {}).items()
            if labels.get(key) != value
        ]
        if missing:
            yield Finding((*path, "selector"), f"{missing[0]}, which no pod has", "labels of template.metadata.labels")
        return
    if selector:
        yield wrong((*path, "selector"), selector, "no selector: the API server makes one for each Job")
    for name in SET_BY_SERVER:
        if name in labels:
            place = (*path, "template", "metadata", "labels", name)
            yield wrong(place, labels[name], "no such label: the API server sets it for each Job")


def _wrong_failure_policy(path: Path, job: dict[str, Any]) -> Iterator[Finding]:
    rules = job["podFailurePolicy"].get("rules") or []
    if len(rules) > MAX_POLICY_RULES:
        yield wrong((*path, "rules"), rules, f"at most {MAX_POLICY_RULES} rules")
    pod = job["template"]["spec"]
    names = {each["name"] for field in ("containers", "initContainers") for each in pod.get(field) or ()}
    for index, rule in enumerate(rules):
        place: Path = (*path, "rules", index)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if (codes is None) == (not conditions):
            found = "onExitCodes and onPodConditions" if codes else "neither onExitCodes nor onPodConditions"
            yield Finding(place, found, "one of onExitCodes and onPodConditions")
        if rule["action"] == "FailIndex" and job.get("backoffLimitPerIndex") is None:
            yield wrong((*place, "action"), "FailIndex", "backoffLimitPerIndex of the Job beside it")
        if codes is not None:
            yield from _wrong_exit_codes((*place, "onExitCodes"), codes, names)


def _wrong_exit_codes(path: Path, codes: dict[str, Any], names: set[str]) -> Iterator[Finding]:
    values, container = codes["values"], codes.get("containerName")
    if container is not None and container not in names:
        yield wrong((*path, "containerName"), container, f"the name of a container of the pod ({', '.join(names)})")
    if codes["operator"] == "In" and 0 in values:
        yield wrong((*path, "values", values.index(0)), 0, "exit codes of failures: not 0 with operator In")
    if values != sorted(set(values)):
        yield wrong((*path, "values"), values, "each exit code once, in ascending order")
    if len(values) > MAX_EXIT_CODES:
        yield wrong((*path, "values"), values, f"at most {MAX_EXIT_CODES} exit codes")


def wrong_workload(template: Mapping[str, Any]) -> list[Finding]:
    """What the API server would refuse of the workload of a template of JSON types without a `wrong_type`.

    Rules across fields are checked if all fields have their types.

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
        yield from _wrong_job(path, job)
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
