"""From a model's JSON schema to the structural OpenAPI v3 schema that a CustomResourceDefinition carries.

Kubernetes takes no references, no unions with null and no `additionalProperties: false`: references are put in place,
the null of an optional field is left out (absence says the same), and the API server itself refuses unknown fields.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# What the API server knows of every object; it owns the schema of metadata.
API_VERSION_DESCRIPTION = "The API version of this representation of the object."
KIND_DESCRIPTION = "The kind of the object."


def structural_schema(model: type[BaseModel]) -> Schema:
    """The schema of a kind, with the defaults of its spec and none in its status."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    schema = _converted(document, document.get("$defs", {}))
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": API_VERSION_DESCRIPTION}
    properties["kind"] = {"type": "string", "description": KIND_DESCRIPTION}
    properties["metadata"] = {"type": "object"}
    properties["status"] = _without_defaults(properties["status"])
    for rule in schema.get("x-kubernetes-validations", []):
        if rule.get("fieldPath", "").startswith(".metadata"):
            # The API server owns the schema of metadata and takes no path into it.
            del rule["fieldPath"]
    return schema


def _converted(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _in_place(node, definitions)
    schema = {key: value for key, value in node.items() if key not in DROPPED}
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    if "properties" in schema:
        schema["properties"] = {name: _converted(part, definitions) for name, part in schema["properties"].items()}
    if "items" in schema:
        schema["items"] = _converted(schema["items"], definitions)
    _set_unknown_fields(schema, node.get("additionalProperties"), definitions)
    _set_default(schema, node)
    return {key: schema[key] for key in sorted(schema, key=_order)}


# How a reader takes a schema in: what it is, what it may be, what it consists of.
FIRST = ("description", "type", "format", "enum", "default")
LAST = ("required", "items", "properties", "additionalProperties", "x-kubernetes-validations")


def _order(key: str) -> tuple[int, int, str]:
    if key in FIRST:
        return (0, FIRST.index(key), key)
    return (2, LAST.index(key), key) if key in LAST else (1, 0, key)


# Said otherwise below, or of no meaning to Kubernetes.
DROPPED = frozenset(
    {"$defs", "title", "const", "default", "additionalProperties", "propertyNames", "x-wattloop-unpublished-default"}
)


def _in_place(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """The node with its reference resolved and the null of an optional field left out; what stands beside wins."""
    node = dict(node)
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            target = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        else:
            (target,) = (choice for choice in node.pop("anyOf") if choice != {"type": "null"})
        node = {**target, **node}
    return node


def _set_unknown_fields(schema: Schema, additional: object, definitions: dict[str, Schema]) -> None:
    if isinstance(additional, dict):
        schema["additionalProperties"] = _converted(additional, definitions)
    elif additional is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True


def _set_default(schema: Schema, node: Schema) -> None:
    """State a default that says something. That of an object is whole: rules are checked on it as it stands."""
    default = _without_null(node.get("default"))
    if default not in (None, "", [], {}) and "x-wattloop-unpublished-default" not in node:
        schema["default"] = default


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_null(part) for key, part in value.items() if part is not None}


def _without_defaults(schema: Schema) -> Schema:
    """A status says what was seen: a default in it would say what nobody has seen."""
    cleaned = {key: value for key, value in schema.items() if key != "default"}
    for key in ("items", "additionalProperties"):
        if key in cleaned:
            cleaned[key] = _without_defaults(cleaned[key])
    if "properties" in cleaned:
        cleaned["properties"] = {name: _without_defaults(part) for name, part in cleaned["properties"].items()}
    return cleaned
