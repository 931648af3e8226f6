"""Checks a document against the schema of its kind, and against its CEL rules as the API server does at creation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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
from wattloop_operator.api.checks.manifest_schema import manifest_schema, strict_schema
from wattloop_operator.api.earlier_fields import replacement_of
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

REPETITIONS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")


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
