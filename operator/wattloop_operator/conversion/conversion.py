"""Converts the cron kinds of a file, and checks the result as the API server would."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from wattloop.errors import UsageError
from wattloop.files.reading import read_text
from wattloop.printable import printable
from wattloop_operator.api.checks.documents import (
    MAX_FILE_BYTES,
    Document,
    DocumentError,
    check_no_template,
    read_documents,
)
from wattloop_operator.api.checks.manifest_problem import Path, shortened
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.schemas import Kind
from wattloop_operator.conversion.cron_kinds import KINDS, Conversion, Note, converted, cron_kind

Refusal = Callable[[Kind], str | None]
"""Why the operator would start no run of a valid object; None if it would."""
EXPECTED = " or ".join(f"a {each.kind} of {each.group}" for each in KINDS)


@dataclass(frozen=True)
class ConvertedFile:
    """The result of converting a file.

    Attributes:
        text: The manifests, as YAML with comments.
        messages: What could not be carried over, one line each with its place in the file.
    """

    text: str
    messages: list[str]


def convert_file(path: str, refusal: Refusal) -> ConvertedFile:
    """Convert every cron kind of a file.

    Args:
        path: The file; `-` reads standard input.
        refusal: Why the operator would start no run of the result.

    Raises:
        InputError: The file cannot be read.
        UsageError: It is not YAML, has no cron kind, or has one of which no valid RecurringTrainingJob can be made.
    """
    source = "standard input" if path == "-" else path
    text = read_text("/dev/stdin" if path == "-" else path, MAX_FILE_BYTES, "a manifest", encoding="utf-8-sig")
    texts, messages = [], []
    try:
        check_no_template(source, text)
        for document in chain.from_iterable(each.objects() for each in read_documents(source, text)):
            kind = cron_kind(document.value)
            if kind is None:
                todo = advice(document.value)
                name = document.value.get("kind") if isinstance(document.value, dict) else None
                title = shortened(str(name)) if name else "a document without a kind"
                left_out = f"{title} is left out, because it is not {EXPECTED}{'; ' if todo else ''}{todo}"
                messages.append(f"{_place(document, ())}: {left_out}")
                continue
            conversion = converted(kind, document)
            texts.append(_checked_text(document, conversion, refusal))
            messages += [f"{_place(document, note.path)}: {note}" for note in conversion.notes]
    except DocumentError as error:
        raise UsageError(str(error.problem)) from error
    if not texts:
        raise UsageError("\n".join([*messages, f"{source}: found nothing to convert, expected {EXPECTED}"]))
    return ConvertedFile("---\n".join(texts), messages)


def _checked_text(document: Document, conversion: Conversion, refusal: Refusal) -> str:
    result = check_text(conversion.source, manifest_text(conversion.manifest, [], {}), workloads=True)
    if result.problems:
        problems = "; ".join(f"{each.path}: found {each.found}, expected {each.expected}" for each in result.problems)
        raise UsageError(f"{_place(document, ())}: {conversion.source} makes no valid RecurringTrainingJob: {problems}")
    reasons = filter(None, map(refusal, result.valid))
    conversion.notes += [Note((), f"the operator would not start this job: {reason}") for reason in reasons]
    header = [
        f"Made by wattloop convert of {conversion.source}. Delete it when this job runs: it would train beside it.",
        "Set what is marked SET. What is different, and what could not be carried over:",
        *(f"- {note}" for note in conversion.notes),
    ]
    return manifest_text(conversion.manifest, header, conversion.remarks)


def _place(document: Document, path: Path) -> str:
    position = document.position(path)
    return f"{document.source}:{position.line}:{position.column}"


# Strings that no version of YAML takes for anything else; all others are quoted.
PLAIN = re.compile(r"^[A-Za-z/](?:(?:[A-Za-z0-9_./ -]|:(?=[^ ]))*[A-Za-z0-9_./-])?$")
WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Lines of a script, which a literal block shows as they are.
LINES = re.compile(r"^(?:[!-~](?:[ -~]*[!-~])?\n)(?:(?:[ -~]*[!-~])?\n)*(?:[ -~]*[!-~])\n?$")
INDENT = 2


def manifest_text(manifest: Mapping[str, Any], header: list[str], remarks: Mapping[Path, str]) -> str:
    """The text of a manifest.

    Args:
        manifest: The manifest, of JSON types.
        header: Lines of the comment before it.
        remarks: Comments above fields, by path.

    Example:
        >>> print(manifest_text({"a": {"b": "on", "c": "5"}}, ["Made."], {("a", "b"): "Set it."}), end="")
        # Made.
        a:
          # Set it.
          b: "on"
          c: "5"
    """
    yaml = YAML()
    yaml.width = 4096
    # No aliases: not every tool that reads manifests supports them.
    yaml.representer.ignore_aliases = lambda _: True
    yaml.indent(mapping=INDENT, sequence=2 * INDENT, offset=INDENT)
    stream = io.StringIO()
    yaml.dump(_commented(manifest, (), remarks), stream)
    return "".join(f"# {printable(line, len(line))}\n" for line in header) + stream.getvalue()


def _commented(value: Any, path: Path, remarks: Mapping[Path, str]) -> Any:
    """The value in the types of the YAML library, with its comments and quotes."""
    if isinstance(value, Mapping):
        # A key is a string too, and may need quotes.
        made = CommentedMap({_string(name): _commented(part, (*path, name), remarks) for name, part in value.items()})
        for name in value:
            remark = remarks.get((*path, name))
            if remark is not None:
                made.yaml_set_comment_before_after_key(name, before=remark, indent=INDENT * len(path))
        return made
    if isinstance(value, list):
        return CommentedSeq(_commented(part, (*path, index), remarks) for index, part in enumerate(value))
    return _string(value) if isinstance(value, str) else value


def _string(text: str) -> str:
    if PLAIN.match(text) and text.lower() not in WORDS:
        return text
    quoted: str = LiteralScalarString(text) if LINES.match(text) else DoubleQuotedScalarString(text)
    return quoted


RUN_REQUEST = "or keep it, and have that step set spec.runRequest of a job without a schedule (docs/day-two.md)"
STEP = (
    "it starts several steps; put the container of the step that trains into spec.template.spec of a "
    "RecurringTrainingJob, and the schedule into spec.schedule"
)
AS_WORKLOAD = "it has no schedule; put its apiVersion, kind and spec into spec.template of a RecurringTrainingJob"
OF_KINDS = {
    ("argoproj.io", "CronWorkflow"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "Workflow"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "WorkflowTemplate"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "ClusterWorkflowTemplate"): f"{STEP}, {RUN_REQUEST}",
    ("kubeflow.org", "ScheduledWorkflow"): f"{STEP}, {RUN_REQUEST}",
    ("tekton.dev", "Pipeline"): f"{STEP}, {RUN_REQUEST}",
    ("apps.kubedl.io", "Cron"): (
        "put its spec.schedule into spec.schedule of a RecurringTrainingJob, and apiVersion, kind and "
        "workload.spec of its spec.template into spec.template"
    ),
    ("batch", "Job"): "it has no schedule; put its spec into spec.template.spec of a RecurringTrainingJob",
    ("wattloop.dev", "RecurringTrainingJob"): "it is one already",
}
GROUPS_WITHOUT_SCHEDULE = frozenset(
    {"jobset.x-k8s.io", "trainer.kubeflow.org", "kubeflow.org", "ray.io", "training.kubedl.io", "batch.volcano.sh"}
)


def advice(manifest: object) -> str:
    """What to do with an object that is not converted; empty for one that starts no training.

    Example:
        >>> advice({"apiVersion": "batch/v1", "kind": "Job"})
        'it has no schedule; put its spec into spec.template.spec of a RecurringTrainingJob'
    """
    if not isinstance(manifest, dict):
        return ""
    group, kind = str(manifest.get("apiVersion")).partition("/")[0], str(manifest.get("kind"))
    return OF_KINDS.get((group, kind)) or (AS_WORKLOAD if group in GROUPS_WITHOUT_SCHEDULE else "")
