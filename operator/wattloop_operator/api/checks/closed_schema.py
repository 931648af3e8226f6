"""The schema of a kind as `wattloop validate` checks it: with what the API server adds by itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from wattloop_operator.api.kinds import KINDS
from wattloop_operator.api.structural_schema import structural_schema

TEXT: dict[str, Any] = {"type": "string"}
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
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    "description": "Lower-case letters, digits, - and ., beginning and ending with a letter or digit.",
}
# What a user may write of metadata, and what `kubectl get -o yaml` adds to it.
METADATA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": OBJECT_NAME,
        "generateName": TEXT,
        "namespace": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            "description": "Lower-case letters, digits and -, beginning and ending with a letter or digit.",
        },
        "labels": {"type": "object", "additionalProperties": LABEL_VALUE},
        "annotations": {"type": "object", "additionalProperties": TEXT},
        "finalizers": {"type": "array", "items": TEXT},
        "ownerReferences": {"type": "array", "items": {"type": "object"}},
        "managedFields": {"type": "array", "items": {"type": "object"}},
        "uid": TEXT,
        "resourceVersion": TEXT,
        "selfLink": TEXT,
        "generation": {"type": "integer"},
        "creationTimestamp": TEXT,
        "deletionTimestamp": TEXT,
        "deletionGracePeriodSeconds": {"type": "integer"},
    },
}


@cache
def open_schema(kind: str) -> dict[str, Any]:
    """The schema of a kind as its CustomResourceDefinition has it, with that of metadata."""
    model = next(model for model in KINDS if model.resource.kind == kind)
    schema = structural_schema(model)
    schema["x-kubernetes-validations"] = [rule.to_schema() for rule in model.rules]
    schema["properties"]["metadata"] = METADATA
    schema["required"] = ["metadata", *schema["required"]]
    return schema


@cache
def closed_schema(kind: str) -> dict[str, Any]:
    """The same, refusing unknown fields, as the API server does where it is asked to be strict."""
    return _closed(open_schema(kind))


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            closed[key] = _closed(schema[key])
    return closed
