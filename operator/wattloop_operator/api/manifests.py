"""Manifests in files, checked as the API server would and read into models."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from wattloop.files.reading import read_bounded
from wattloop_operator.api.checks.closed_schema import open_schema
from wattloop_operator.api.checks.defaults import with_defaults
from wattloop_operator.api.checks.documents import MAX_FILE_BYTES, Document, DocumentError, read_documents
from wattloop_operator.api.checks.messages import shown
from wattloop_operator.api.checks.problem import Problem, printable, shortened
from wattloop_operator.api.checks.rule_check import rule_problems
from wattloop_operator.api.checks.schema_check import schema_problems
from wattloop_operator.api.cron import ScheduleError, check_schedule
from wattloop_operator.api.group import API_VERSION, GROUP
from wattloop_operator.api.kinds import KINDS, Kind
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

MAX_PROBLEMS = 200
MODELS: dict[str, type[Kind]] = {model.resource.kind: model for model in KINDS}


@dataclass
class Checked:
    """What came of a file.

    Attributes:
        accepted: The objects that are right, with all defaults.
        problems: What is wrong, in the order of the file.
        passed_over: Kind and name of each object that is none of ours.
    """

    accepted: list[Kind] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def check_file(path: str) -> Checked:
    """Check every manifest of a file (`-`: of standard input).

    Example:
        >>> check_file("no/such/file.yaml").problems[0].found
        'no readable file (No such file or directory)'
    """
    try:
        data = _read(path)
    except OSError as error:
        found = f"no readable file ({error.strerror})"
        return Checked(problems=[Problem(path, "", found, "a manifest in YAML or JSON")])
    return check_bytes(path, data)


def check_bytes(source: str, data: bytes) -> Checked:
    """Check every manifest of a file's content; `source` is its name in problems."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        return Checked(problems=[Problem(source, "", found, "a manifest in UTF-8")])
    return check_text(source, text)


def check_text(source: str, text: str) -> Checked:
    """Check every manifest of a text; `source` is its name in problems."""
    checked = Checked()
    try:
        for document in read_documents(source, text):
            _check(document, checked)
    except DocumentError as error:
        checked.problems.append(error.problem)
    left_out = len(checked.problems) - MAX_PROBLEMS
    if left_out > 0:
        del checked.problems[MAX_PROBLEMS:]
        checked.problems.append(Problem(source, "", f"{left_out} more problems", "the problems above solved first"))
    return checked


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    return read_bounded(path, MAX_FILE_BYTES)


def _check(document: Document, checked: Checked) -> None:
    value = document.value
    if not isinstance(value, dict):
        checked.problems.append(document.problem((), shown(value), "a manifest: an object with apiVersion and kind"))
        return
    version, kind = value.get("apiVersion"), value.get("kind")
    missing = [
        name for name, part in (("apiVersion", version), ("kind", kind)) if not isinstance(part, str) or not part
    ]
    if missing:
        expected = f"a manifest with {' and '.join(missing)}, such as apiVersion: {API_VERSION}"
        checked.problems.append(document.problem((), f"no {' and no '.join(missing)}", expected))
    elif kind in MODELS or str(version).partition("/")[0] == GROUP:
        _check_ours(document, str(version), str(kind), checked)
    else:
        checked.passed_over.append(printable(f"{shortened(str(kind))} {_name(value)}"))


def _check_ours(document: Document, version: str, kind: str, checked: Checked) -> None:
    if kind not in MODELS:
        close = difflib.get_close_matches(kind, MODELS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        checked.problems.append(document.problem(("kind",), shown(kind), f"one of {', '.join(MODELS)}{hint}"))
        return
    if version != API_VERSION:
        checked.problems.append(document.problem(("apiVersion",), shown(version), API_VERSION))
        return
    value = with_defaults(open_schema(kind), document.value)
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and "name" not in metadata and isinstance(metadata.get("generateName"), str):
        # The API server adds five characters.
        value["metadata"] = metadata | {"name": f"{metadata['generateName']}00000"}
    problems = schema_problems(document, kind, value) or rule_problems(document, kind, value)
    problems = problems or _model_problems(document, kind, value, checked)
    checked.problems.extend(problems)


def _model_problems(document: Document, kind: str, value: dict[str, Any], checked: Checked) -> list[Problem]:
    try:
        manifest = MODELS[kind].from_wire(value)
    except ValidationError as error:
        return [
            document.problem(tuple(each["loc"]), shown(each["input"]), each["msg"].removeprefix("Value error, "))
            for each in error.errors()
        ]
    if isinstance(manifest, RecurringTrainingJob) and manifest.spec.trigger.cron is not None:
        cron = manifest.spec.trigger.cron
        try:
            check_schedule(cron.schedule, cron.time_zone)
        except ScheduleError as error:
            return [document.problem(("spec", "trigger", "cron", error.field), error.found, error.expected)]
    checked.accepted.append(manifest)
    return []


def _name(value: dict[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name)[:253] if name else "without a name"
