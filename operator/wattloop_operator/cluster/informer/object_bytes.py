"""What objects in the cache take in memory, estimated from the size of their JSON, and its sum by namespace.

Measured with tracemalloc. A model of Wattloop's objects takes six times its JSON, as parsed JSON does. It counts ten
times, since the whole operator was measured with shares of that size: what it derives from a job takes memory too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pydantic_core

# A version that is refused leaves its identity and a text.
REFUSED_BYTES = 1_000
MODEL_BYTES, BYTES_OF_MODEL_BYTE = 8_000, 10
PARSED_BYTES, BYTES_OF_PARSED_BYTE = 2_000, 6


def model_bytes(body: Mapping[str, Any]) -> int:
    """Bytes of one of Wattloop's own objects, whose template is kept as text.

    Example:
        >>> model_bytes({"spec": {"template": {"x": "y" * 1000}}})
        9268
    """
    spec = body.get("spec") or {}
    template = _json_bytes(spec.get("template"))
    rest = _json_bytes({**body, "spec": {**spec, "template": None}})
    return MODEL_BYTES + template + BYTES_OF_MODEL_BYTE * rest


def parsed_bytes(body: Mapping[str, Any]) -> int:
    """Bytes of parsed JSON, such as the kept part of a Job or a pod."""
    return PARSED_BYTES + BYTES_OF_PARSED_BYTE * _json_bytes(body)


def _json_bytes(value: Any) -> int:
    return len(pydantic_core.to_json(value))


Key = tuple[str, str]


class NamespaceBytes:
    """Adds up the bytes that each namespace's objects count. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_object: dict[Key, int] = {}
        self._of_namespace: dict[str, int] = {}

    def of_namespace(self, namespace: str) -> int:
        """Bytes of a namespace's objects."""
        with self._lock:
            return self._of_namespace.get(namespace, 0)

    def of_others(self, key: Key) -> int:
        """Bytes of the objects in an object's namespace, without its own."""
        with self._lock:
            return self._of_namespace.get(key[0], 0) - self._of_object.get(key, 0)

    def set(self, key: Key, size: int) -> None:
        """Record the bytes of an object; 0: it counts no more."""
        with self._lock:
            rest = self._of_namespace.get(key[0], 0) - self._of_object.pop(key, 0) + size
            self._of_namespace[key[0]] = rest
            if size:
                self._of_object[key] = size
            if not rest:
                del self._of_namespace[key[0]]
