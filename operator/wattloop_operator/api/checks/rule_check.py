"""Evaluates the CEL rules of a schema, as the API server does when an object is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import re2
from celpy import Environment, celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from wattloop_operator.api.checks.documents import Document
from wattloop_operator.api.checks.manifest_problem import ManifestProblem, Path
from wattloop_operator.api.checks.manifest_schema import manifest_schema
from wattloop_operator.api.checks.problem_texts import format_value


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
