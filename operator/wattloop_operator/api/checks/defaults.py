"""What the API server does to an object before it checks it: defaults are filled in, also where null stands."""

from __future__ import annotations

import copy
from typing import Any


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """The value with the defaults of its schema, at every depth; the argument stays as it is."""
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
    # What no schema describes (the fields of a pod that only the API server knows) stays as it is.
    additional = schema.get("additionalProperties", {})
    return {name: with_defaults(properties.get(name, additional), part) for name, part in filled.items()}
