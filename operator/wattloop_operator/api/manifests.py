"""Checks the manifests of a file as the API server would, and reads them into models."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from wattloop.errors import InputError
from wattloop.files.reading import read_bounded
from wattloop.printable import printable
from wattloop_operator.api.batch_size import wrong_parameters
from wattloop_operator.api.checks.documents import MAX_FILE_BYTES, Document, DocumentError, read_documents
from wattloop_operator.api.checks.manifest_problem import ManifestProblem, Path, closest, format_value, shortened
from wattloop_operator.api.checks.schema_check import (
    manifest_schema,
    rule_problems,
    schema_problems,
    template_as_written,
    with_defaults,
)
from wattloop_operator.api.cron import ScheduleError, check_schedule
from wattloop_operator.api.frequency_plan import FrequencyPlan, decode_archive
from wattloop_operator.api.model import API_VERSION, GROUP
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import KINDS, Kind
from wattloop_operator.api.template_checks import (
    exceeded_limit,
    full_namespace,
    template_bytes,
    wrong_gpu_request,
    wrong_job,
    wrong_type,
)
from wattloop_operator.api.workload_checks.fields import misspelt
from wattloop_operator.api.workload_checks.jobs import wrong_workload

MAX_PROBLEMS = 200
MODELS: dict[str, type[Kind]] = {model.resource.kind: model for model in KINDS}


@dataclass
class CheckResult:
    """Result of checking a file.

    Attributes:
        valid: The valid objects, with all defaults.
        problems: The problems, in the order of the file.
        skipped: Kind and name of each object of another API group.
    """

    valid: list[Kind] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def check_file(path: str, *, workloads: bool = False) -> CheckResult:
    """Check every manifest of a file, or of standard input if the path is `-`.

    Args:
        path: The file.
        workloads: Whether to check the Jobs and pods of templates, too, as the API server does when they start.

    Example:
        >>> check_file("no/such/file.yaml").problems[0].found
        'no readable file (No such file or directory)'
    """
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if path == "-" else read_bounded(path, MAX_FILE_BYTES)
    except OSError as error:
        found = f"no readable file ({error.strerror})"
        return CheckResult(problems=[ManifestProblem(path, "", found, "a manifest in YAML or JSON")])
    return check_bytes(path, data, workloads=workloads)


def check_namespaces(results: Mapping[str, CheckResult]) -> None:
    """Add a problem for each job whose template has no room beside those of its namespace before it.

    Args:
        results: The results by file; manifests without a namespace count as those of one.
    """
    held: dict[str, int] = {}
    for file, result in results.items():
        for manifest in [each for each in result.valid if isinstance(each, RecurringTrainingJob)]:
            namespace, size = manifest.metadata.namespace, template_bytes(manifest.spec.template.to_wire())
            full = full_namespace(held.get(namespace, 0), size)
            if full is None:
                held[namespace] = held.get(namespace, 0) + size
            else:
                result.valid.remove(manifest)
                where = f"{manifest.metadata.name}: spec.template"
                result.problems.append(ManifestProblem(file, where, full.found, full.expected))


def check_bytes(source: str, data: bytes, *, workloads: bool = False) -> CheckResult:
    """Check every manifest of a file's content; `source` is the file's name in problems."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        return CheckResult(problems=[ManifestProblem(source, "", found, "a manifest in UTF-8")])
    return check_text(source, text, workloads=workloads)


def check_text(source: str, text: str, *, workloads: bool = False) -> CheckResult:
    """Check every manifest of a text; `source` is its name in problems."""
    result = CheckResult()
    try:
        for document in read_documents(source, text):
            for each in document.objects():
                _check(each, result, workloads)
    except DocumentError as error:
        result.problems.append(error.problem)
    omitted = len(result.problems) - MAX_PROBLEMS
    if omitted > 0:
        del result.problems[MAX_PROBLEMS:]
        result.problems.append(
            ManifestProblem(source, "", f"{omitted} more problems", "the problems above solved first")
        )
    return result


def _check(document: Document, result: CheckResult, workloads: bool) -> None:
    value = document.value
    if not isinstance(value, dict):
        expected = "a manifest: an object with apiVersion and kind"
        result.problems.append(document.problem((), format_value(value), expected))
        return
    version, kind = value.get("apiVersion"), value.get("kind")
    missing = [
        name for name, part in (("apiVersion", version), ("kind", kind)) if not isinstance(part, str) or not part
    ]
    if missing:
        expected = f"a manifest with {' and '.join(missing)}, such as apiVersion: {API_VERSION}"
        result.problems.append(document.problem((), f"no {' and no '.join(missing)}", expected))
    elif kind == "List":
        expected = "a list of objects"
        result.problems.append(document.problem(("items",), format_value(value.get("items")), expected))
    elif kind in MODELS or str(version).partition("/")[0] == GROUP:
        _check_kind(document, str(version), str(kind), result, workloads)
    else:
        result.skipped.append(printable(f"{shortened(str(kind))} {_name(value)}"))


def _check_kind(document: Document, version: str, kind: str, result: CheckResult, workloads: bool) -> None:
    """Check a manifest of Wattloop's API group, or one that has the kind of one."""
    if kind not in MODELS:
        close = closest(kind, MODELS)
        hint = f" (did you mean {close}?)" if close else ""
        result.problems.append(document.problem(("kind",), format_value(kind), f"one of {', '.join(MODELS)}{hint}"))
        return
    if version != API_VERSION:
        result.problems.append(document.problem(("apiVersion",), format_value(version), API_VERSION))
        return
    value = with_defaults(manifest_schema(kind), document.value)
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and "name" not in metadata and isinstance(metadata.get("generateName"), str):
        # The API server appends five characters.
        value["metadata"] = metadata | {"name": f"{metadata['generateName']}00000"}
    problems = schema_problems(document, kind, value) or rule_problems(document, kind, value)
    if kind == RecurringTrainingJob.resource.kind:
        problems += _template_problems(document, value.get("spec"), workloads)
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.path))
    result.problems.extend(problems or _model_problems(document, kind, value, result))


def _template_problems(document: Document, spec: Any, workloads: bool) -> list[ManifestProblem]:
    """The problems of a template whose spec is an object; of another one the schema says what is wrong."""
    written = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(written, dict):
        return []
    place, template = template_as_written(written)
    if not isinstance(template.get("spec"), dict):
        return []

    def problem(path: Path, found: str, expected: str, *, at_key: bool = False) -> ManifestProblem:
        """A problem at a path of the job's spec, where the user has it."""
        if path[:2] == ("template", "spec"):
            path = ("template", *place, *path[2:])
        return document.problem(("spec", *path), found, expected, at_key=at_key)

    exceeded = exceeded_limit(template)
    if exceeded is not None:
        return [problem(("template",), exceeded.found, exceeded.expected)]
    wrong = wrong_type(template) or wrong_gpu_request(template) or misspelt(template)
    wrong = wrong or wrong_job(template, _names(spec.get("trainingContainers")))
    if wrong is not None:
        return [problem(wrong.path, format_value(wrong.value), wrong.expected)]
    findings = wrong_workload(template) if workloads else []
    return [
        problem(("template", *each.path), each.found, each.expected, at_key=each.is_about_field) for each in findings
    ]


def _names(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else None


def _model_problems(document: Document, kind: str, value: dict[str, Any], result: CheckResult) -> list[ManifestProblem]:
    try:
        manifest = MODELS[kind].from_wire(value)
    except ValidationError as error:
        return [
            document.problem(tuple(each["loc"]), format_value(each["input"]), each["msg"].removeprefix("Value error, "))
            for each in error.errors()
        ]
    if isinstance(manifest, FrequencyPlan) and manifest.spec.archive is not None:
        try:
            decode_archive(manifest.spec.archive)
        except InputError as error:
            return [document.problem(("spec", "archive"), error.found, error.expected)]
    if isinstance(manifest, RecurringTrainingJob):
        wrong = wrong_parameters(manifest.spec.parameters, manifest.spec.batch_size)
        if wrong is not None:
            return [document.problem(("spec", *wrong.path), format_value(wrong.value), wrong.expected)]
        try:
            if manifest.spec.schedule is not None:
                check_schedule(manifest.spec.schedule, manifest.spec.time_zone)
        except ScheduleError as error:
            return [document.problem(("spec", error.field), error.found, error.expected)]
    result.valid.append(manifest)
    return []


def _name(value: dict[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name)[:253] if name else "without a name"
