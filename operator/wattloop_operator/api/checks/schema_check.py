"""Checks a document against the schema of its kind, and says what was found and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from wattloop_operator.api.checks.closed_schema import closed_schema, open_schema
from wattloop_operator.api.checks.documents import Document
from wattloop_operator.api.checks.messages import expected_words, found_words, missing_words, shown
from wattloop_operator.api.checks.problem import Path, Problem
from wattloop_operator.api.checks.suggestions import instead_of


def schema_problems(document: Document, kind: str, value: Any) -> list[Problem]:
    """What the schema of this kind refuses in the value, in the order of the file."""
    errors = _VALIDATOR(closed_schema(kind), format_checker=_FORMATS).iter_errors(value)
    # jsonschema reports a missing field once for each one that is missing, so the same problems come several times.
    problems = {problem for error in errors for problem in _problems(document, kind, error)}
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0, problem.path))


def _problems(document: Document, kind: str, error: ValidationError) -> Iterator[Problem]:
    path: Path = tuple(error.absolute_path)
    schema: Any = error.schema
    instance: Any = error.instance
    keyword = str(error.validator)
    if keyword == "additionalProperties":
        for name in instance.keys() - schema["properties"].keys():
            hint = instead_of(name, path, schema["properties"], open_schema(kind))
            yield document.problem((*path, name), "an unknown field", hint, at_key=True)
    elif keyword == "required":
        for name in schema["required"]:
            if name not in instance:
                expected = missing_words(name, schema["properties"][name])
                yield document.problem(path, f"no {name}", expected, at_key=True)
    elif keyword in REPETITIONS:
        yield document.problem(path, error.message, "each one once")
    else:
        yield document.problem(path, found_words(instance, keyword), expected_words(instance, schema, keyword))


REPETITIONS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """As in Go and Rust, where `$` is the very end and not the place before a last newline."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError("does not match")


def _list_type(_: Any, list_type: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if list_type == "set" and isinstance(instance, list):
        yield from _repeated(instance, shown)


def _map_keys(_: Any, keys: list[str], instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list) and all(isinstance(item, dict) for item in instance):
        yield from _repeated(
            [tuple(item.get(key) for key in keys) for item in instance],
            lambda key: ", ".join(f"{name} {shown(part)}" for name, part in zip(keys, key, strict=True)),
        )


def _repeated(values: list[Any], name: Callable[[Any], str]) -> Iterator[ValidationError]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield ValidationError(f"{name(value)} a second time", path=(index,))


_VALIDATOR: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"pattern": _pattern, "x-kubernetes-list-type": _list_type, "x-kubernetes-list-map-keys": _map_keys},
)
_FORMATS = FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None
