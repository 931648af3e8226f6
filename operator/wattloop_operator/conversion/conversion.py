"""Converts the cron kinds of a file, and checks the result as the API server would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from wattloop.errors import UsageError
from wattloop.files.reading import read_text
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
from wattloop_operator.conversion.cron_kinds import KINDS, Conversion, ConversionError, converted, cron_kind
from wattloop_operator.conversion.manifest_text import manifest_text
from wattloop_operator.conversion.notes import Note
from wattloop_operator.conversion.other_kinds import advice

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
                left_out = f"{_title(document)} is left out, because it is not {EXPECTED}{'; ' if todo else ''}{todo}"
                messages.append(f"{_place(document, ())}: {left_out}")
                continue
            conversion = converted(kind, document)
            texts.append(_checked_text(document, conversion, refusal))
            messages += [f"{_place(document, note.path)}: {note}" for note in conversion.notes]
    except (DocumentError, ConversionError) as error:
        raise UsageError(str(error.problem)) from error
    if not texts:
        raise UsageError("\n".join([*messages, f"{source}: found nothing to convert, expected {EXPECTED}"]))
    return ConvertedFile("---\n".join(texts), messages)


def _checked_text(document: Document, conversion: Conversion, refusal: Refusal) -> str:
    """The text of a job, after a check that the API server would accept it."""
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


def _title(document: Document) -> str:
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    return shortened(str(kind)) if kind else "a document without a kind"
