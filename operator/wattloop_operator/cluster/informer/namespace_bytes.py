"""Bytes of objects, added up by namespace."""

from __future__ import annotations

import threading

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
