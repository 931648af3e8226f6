"""The schema of a kind as `wattloop validate` checks it: with the metadata and defaults that the API server adds."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from wattloop_operator.api.field_types import DNS_LABEL, DNS_SUBDOMAIN_PATTERN
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
