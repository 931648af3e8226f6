"""Canonical JSON, of which digests are made: sorted keys, no spaces, floats in their shortest exact notation."""

import json

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_json(value: object) -> str:
    """The canonical JSON of a value.

    Example:
        >>> canonical_json({"b": 0.1, "a": [1, None]})
        '{"a":[1,null],"b":0.1}'
    """
    return _ENCODER.encode(value)
