"""Evaluates the CEL rules of a schema, as the API server does at the creation of an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from celpy import Environment, celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from wattloop_operator.api.checks.closed_schema import open_schema
from wattloop_operator.api.checks.documents import Document
from wattloop_operator.api.checks.messages import shown
from wattloop_operator.api.checks.problem import Path, Problem


def rule_problems(document: Document, kind: str, value: Any) -> list[Problem]:
    """What the rules of this kind refuse in a value that its schema accepts, its defaults filled in."""
    return [
        document.problem(*_where(path, rule, part), rule["message"])
        for path, rule, part in _rules(open_schema(kind), value, ())
        if not _holds(rule["rule"], part)
    ]


def _rules(schema: dict[str, Any], value: Any, path: Path) -> Iterator[tuple[Path, dict[str, str], Any]]:
    """Every rule that applies somewhere in the value; rules about updates do not apply to a manifest."""
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


def _holds(expression: str, value: Any) -> bool:
    try:
        return bool(_program(expression).evaluate({"self": json_to_cel(value)}))
    except CELEvalError:
        # The API server takes a rule that cannot be evaluated for one that does not hold.
        return False


@cache
def _program(expression: str) -> Any:
    environment = Environment()
    return environment.program(environment.compile(expression), functions=_FUNCTIONS)


def _where(path: Path, rule: dict[str, str], value: Any) -> tuple[Path, str]:
    """The field that the rule points to, and what was found there."""
    for name in rule.get("fieldPath", "").split(".")[1:]:
        if not isinstance(value, dict) or name not in value:
            return path, f"no {name}"
        path, value = (*path, name), value[name]
    return path, shown(value)


def _sum(numbers: celtypes.ListType) -> celtypes.IntType:
    """Of the list library that Kubernetes adds to CEL."""
    return sum((celtypes.IntType(str(number)) for number in numbers), start=celtypes.IntType(0))


_FUNCTIONS: dict[str, Callable[..., Any]] = {"sum": _sum}
