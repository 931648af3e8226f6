"""Checks a document against the schema of its kind, and against its CEL rules as the API server does at creation.

The schema has the metadata and defaults that the API server adds. Fields of a RecurringTrainingJob that an earlier
version had are not converted: a problem names what takes their place.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import re2
from celpy import Environment, celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from wattloop_operator.api.checks.documents import Document
from wattloop_operator.api.checks.manifest_problem import (
    ManifestProblem,
    Path,
    expected_text,
    format_path,
    format_value,
    found_text,
    missing_field_text,
    unknown_field_text,
)
from wattloop_operator.api.field_types import DNS_LABEL, DNS_SUBDOMAIN_PATTERN
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import KINDS, structural_schema

STRING: dict[str, Any] = {"type": "string"}
LABEL_VALUE = {
    "type": "string",
    "maxLength": 63,
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    "description": "Letters, digits, -, _ and ., beginning and ending with a letter or digit.",
}
OBJECT_NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": 253,
    "pattern": DNS_SUBDOMAIN_PATTERN,
    "description": "Lower-case letters, digits, - and ., beginning and ending with a letter or digit.",
}
# The fields that users write, and those that `kubectl get -o yaml` adds.
METADATA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": OBJECT_NAME,
        "generateName": STRING,
        "namespace": {
            "type": "string",
            "maxLength": 63,
            "pattern": f"^({DNS_LABEL})?$",
            "description": "Lower-case letters, digits and -, beginning and ending with a letter or digit.",
        },
        "labels": {"type": "object", "additionalProperties": LABEL_VALUE},
        "annotations": {"type": "object", "additionalProperties": STRING},
        "finalizers": {"type": "array", "items": STRING},
        "ownerReferences": {"type": "array", "items": {"type": "object"}},
        "managedFields": {"type": "array", "items": {"type": "object"}},
        "uid": STRING,
        "resourceVersion": STRING,
        "selfLink": STRING,
        "generation": {"type": "integer"},
        "creationTimestamp": STRING,
        "deletionTimestamp": STRING,
        "deletionGracePeriodSeconds": {"type": "integer"},
    },
}
# Path, with [] for the index of a list: what is expected in its place.
EARLIER_FIELDS = {
    "spec.crashBudget": "no such field: a batch size is no longer tried after 3 consecutive crashes",
    "spec.failedHistoryLimit": "spec.failedRunsHistoryLimit",
    "spec.missedRunPolicy": "no such field: one run replaces all missed ones; startingDeadlineSeconds bounds how late",
    "spec.objective.carbon": "no such field: the chart's value tariff, or --tariff of wattloop run",
    "spec.objective.earlyStop": "no such field: no run may cost more than twice the cheapest known batch size",
    "spec.objective.metricGuard": "spec.objective.target.tolerance: the number that was metricGuard.margin",
    "spec.objective.price": "no such field: the chart's value tariff, or --tariff of wattloop run",
    "spec.objective.progressDeadlineSeconds": "spec.progressDeadlineSeconds",
    "spec.parameters[].scale": "no such field: the scale follows from the candidates",
    "spec.policy": "spec.batchSize.policy (ThompsonSampling or Zeus), spec.mode Fixed, spec.learnSince",
    "spec.power.frequencyPlan.baseline": "an argument of the client: Pipeline(plan=LimitBaseline(…))",
    "spec.power.frequencyPlan.directory": "an argument of the client: Pipeline(plan=…)",
    "spec.power.frequencyPlan.mode": "no such field: ranks of a pipeline run plans with power.mode None, and no other",
    "spec.power.frequencyPlanRef": "spec.power.frequencyPlan.name",
    "spec.power.limit": "its fields directly in spec.power",
    "spec.probes": "an argument of the client: TrainingProbe(…, plan=ProbePlan(…)) in the script",
    "spec.queue": "the labels kueue.x-k8s.io/queue-name and kueue.x-k8s.io/priority-class in "
    "spec.template.metadata.labels",
    "spec.reporting.firstEpoch": "no such field: an evaluation of epoch 0 shows that the script counts from 0",
    "spec.reporting.metricName": "spec.objective.target.metric: the name as the script prints it",
    "spec.retryPolicy": "spec.retries: the number that was retryPolicy.limit",
    "spec.successfulHistoryLimit": "spec.successfulRunsHistoryLimit",
    "spec.template.annotations": "spec.template.metadata.annotations",
    "spec.template.job": "spec.template.spec",
    "spec.template.labels": "spec.template.metadata.labels",
    "spec.template.rendezvous": "no such field: completionMode Indexed is enough",
    "spec.template.trainingContainers": "spec.trainingContainers",
    "spec.template.workload": "spec.template.apiVersion, spec.template.kind and spec.template.spec",
    "spec.trigger": "spec.schedule and spec.timeZone (trigger.cron), spec.continuous: true, or neither with "
    "spec.runRequest (trigger.manual); continuous with maxRecurrences: 1 runs once",
}
INDEX = re.compile(r"\[\d+\]")
REPETITIONS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")


@cache
def manifest_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind's CustomResourceDefinition, extended by the schema of metadata."""
    model = next(model for model in KINDS if model.resource.kind == kind)
    schema = structural_schema(model)
    schema["x-kubernetes-validations"] = [rule.to_schema() for rule in model.rules]
    schema["properties"]["metadata"] = METADATA
    schema["required"] = ["metadata", *schema["required"]]
    return schema


@cache
def strict_schema(kind: str) -> dict[str, Any]:
    """Return `manifest_schema` without unknown fields, as the API server's strict field validation."""
    return _strict(manifest_schema(kind))


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Return a copy of the value with the schema's defaults at every depth, as the API server sets them.

    A null is replaced if its field has a default.
    """
    if not schema:
        return value
    if isinstance(value, list):
        items = schema.get("items", {})
        return [with_defaults(items, item) for item in value]
    if not isinstance(value, dict):
        return value
    properties: dict[str, Any] = schema.get("properties", {})
    filled = {
        name: part for name, part in value.items() if part is not None or "default" not in properties.get(name, {})
    }
    for name, part in properties.items():
        if name not in filled and "default" in part:
            filled[name] = copy.deepcopy(part["default"])
    # Fields without a schema, such as most fields of a pod, are kept unchanged.
    additional = schema.get("additionalProperties", {})
    return {name: with_defaults(properties.get(name, additional), part) for name, part in filled.items()}


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    strict = dict(schema)
    if "properties" in schema:
        strict["properties"] = {name: _strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            strict[key] = _strict(schema[key])
    return strict


def replacement_of(path: str) -> str | None:
    """What takes the place of an earlier field; None if no earlier version had a field at this path.

    Example:
        >>> replacement_of("spec.failedHistoryLimit")
        'spec.failedRunsHistoryLimit'
    """
    return EARLIER_FIELDS.get(INDEX.sub("[]", path))


def template_as_written(template: Mapping[str, Any]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Where a template has the spec of its workload, and the template in today's form, to check that spec as well.

    Example:
        >>> template_as_written({"job": {"template": {}}})
        (('job',), {'spec': {'template': {}}})
    """
    if "spec" not in template and "job" in template:
        return ("job",), {"spec": template["job"]}
    if "spec" not in template and isinstance(template.get("workload"), dict):
        return ("workload", "spec"), template["workload"]
    return ("spec",), template


def schema_problems(document: Document, kind: str, value: Any) -> list[ManifestProblem]:
    """Return the violations of this kind's schema by the value, in the order of the file."""
    errors = _VALIDATOR(strict_schema(kind), format_checker=_FORMATS).iter_errors(value)
    # jsonschema reports all missing fields once for each missing field, so the problems contain duplicates.
    problems = {problem for error in errors for problem in _problems(document, kind, error)}
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0, problem.path))


def _problems(document: Document, kind: str, error: ValidationError) -> Iterator[ManifestProblem]:
    path: Path = tuple(error.absolute_path)
    schema: Any = error.schema
    instance: Any = error.instance
    keyword = str(error.validator)
    if keyword == "additionalProperties":
        for name in instance.keys() - schema["properties"].keys():
            hint = replacement_of(format_path((*path, name))) if kind == RecurringTrainingJob.resource.kind else None
            found = "an unknown field" if hint is None else "a field of an earlier version"
            hint = hint or unknown_field_text(name, instance, path, schema, manifest_schema(kind))
            yield document.problem((*path, name), found, hint, at_key=True)
    elif keyword == "required":
        # An earlier field says already which field takes its place.
        replaced = [replacement_of(format_path((*path, name))) or "" for name in instance]
        for name in schema["required"]:
            if name not in instance and not any(format_path((*path, name)) in each for each in replaced):
                expected = missing_field_text(name, schema["properties"][name])
                yield document.problem(path, f"no {name}", expected, at_key=True)
    elif keyword in REPETITIONS:
        yield document.problem(path, error.message, "each one once")
    else:
        # A field that may be a number or a string has no type, and refuses all others by bounds.
        keyword = keyword if "type" in schema or keyword == "pattern" else "not"
        yield document.problem(path, found_text(instance, keyword), expected_text(instance, schema, keyword))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """Match as Go and Rust do: `$` is the end of the text, not the position before a final newline."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError("does not match")


def _list_type(_: Any, list_type: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if list_type == "set" and isinstance(instance, list):
        yield from _repeated(instance, format_value)


def _map_keys(_: Any, keys: list[str], instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list) and all(isinstance(item, dict) for item in instance):
        yield from _repeated(
            [tuple(item.get(key) for key in keys) for item in instance],
            lambda key: ", ".join(f"{name} {format_value(part)}" for name, part in zip(keys, key, strict=True)),
        )


def _repeated(values: list[Any], format_item: Callable[[Any], str]) -> Iterator[ValidationError]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield ValidationError(f"{format_item(value)} a second time", path=(index,))


_VALIDATOR: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"pattern": _pattern, "x-kubernetes-list-type": _list_type, "x-kubernetes-list-map-keys": _map_keys},
)
_FORMATS = FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def rule_problems(document: Document, kind: str, value: Any) -> list[ManifestProblem]:
    """Return the violations of this kind's rules by a value that its schema accepts and whose defaults are set."""
    return [
        document.problem(*_location(path, rule, part), rule["message"])
        for path, rule, part in _rules(manifest_schema(kind), value, ())
        if not _is_satisfied(rule["rule"], part)
    ]


def _rules(schema: dict[str, Any], value: Any, path: Path) -> Iterator[tuple[Path, dict[str, str], Any]]:
    """Every rule that applies to a part of the value; rules for updates do not apply to a manifest."""
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"]:
            yield path, rule, value
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, part in value.items():
            yield from _rules(properties.get(name, schema.get("additionalProperties", {})), part, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _rules(schema.get("items", {}), item, (*path, index))


def _is_satisfied(expression: str, value: Any) -> bool:
    try:
        return bool(_program(expression).evaluate({"self": json_to_cel(value)}))
    except CELEvalError:
        # The API server treats a rule that fails to evaluate as violated.
        return False


@cache
def _program(expression: str) -> Any:
    environment = Environment()
    return environment.program(environment.compile(expression), functions=_FUNCTIONS)


def _location(path: Path, rule: dict[str, str], value: Any) -> tuple[Path, str]:
    """The field that the rule points to, and the text of its value."""
    for name in rule.get("fieldPath", "").split(".")[1:]:
        if not isinstance(value, dict) or name not in value:
            return path, f"no {name}"
        path, value = (*path, name), value[name]
    return path, format_value(value)


def _sum(numbers: celtypes.ListType) -> celtypes.IntType:
    """The function `sum` of the list library that Kubernetes adds to CEL."""
    return sum((celtypes.IntType(str(number)) for number in numbers), start=celtypes.IntType(0))


def _matches(text: celtypes.StringType, pattern: celtypes.StringType) -> celtypes.BoolType | CELEvalError:
    """The function `matches` of CEL; celpy's own writes an invalid pattern to stderr."""
    options = re2.Options()
    options.log_errors = False
    try:
        return celtypes.BoolType(re2.search(str(pattern), str(text), options) is not None)
    except re2.error as error:
        return CELEvalError("match error", error.__class__, error.args)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"sum": _sum, "matches": _matches}
