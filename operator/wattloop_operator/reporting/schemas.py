"""The JSON schemas that the forms of the reporting API are put together from."""

from __future__ import annotations

from typing import Any

MAX_INTEGER = 2**63 - 1
PRINTABLE = "^[ -~]*$"


def json_body_form(schema: dict[str, Any]) -> dict[str, Any]:
    """A request body of JSON."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def object_of(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """An object with these properties and no others; all are required unless said."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties) if required is None else required,
        "properties": properties,
    }


def list_of(description: str, items: dict[str, Any], most: int) -> dict[str, Any]:
    """A list."""
    return {"type": "array", "maxItems": most, "items": items, "description": description}


def integer(description: str, most: int = MAX_INTEGER) -> dict[str, Any]:
    """A whole number from 0 up."""
    return {"type": "integer", "minimum": 0, "maximum": most, "description": description}


def number_schema(description: str, most: float, least: float = 0) -> dict[str, Any]:
    """A number."""
    return {"type": "number", "minimum": least, "maximum": most, "description": description}


def text(description: str, longest: int, least: int = 0, pattern: str = PRINTABLE) -> dict[str, Any]:
    """A text of printable ASCII, or of a pattern."""
    return {
        "type": "string",
        "minLength": least,
        "maxLength": longest,
        "pattern": pattern,
        "description": description,
    }


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, or null."""
    return {**schema, "type": [schema["type"], "null"]}
