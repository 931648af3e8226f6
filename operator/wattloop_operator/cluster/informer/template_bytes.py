"""The size of the templates in the cache, by namespace."""

from __future__ import annotations

import threading

from wattloop_operator.cluster.informer.object_store import Key


class TemplateBytes:
    """Adds up the templates of each namespace. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_job: dict[Key, int] = {}
        self._of_namespace: dict[str, int] = {}

    def of_others(self, key: Key) -> int:
        """Bytes of the templates in a job's namespace, without its own."""
        with self._lock:
            return self._of_namespace.get(key[0], 0) - self._of_job.get(key, 0)

    def set(self, key: Key, size: int) -> None:
        """Record the size of a job's template; 0: the job is not in the cache any more."""
        with self._lock:
            rest = self._of_namespace.get(key[0], 0) - self._of_job.pop(key, 0) + size
            self._of_namespace[key[0]] = rest
            if size:
                self._of_job[key] = size
            if not rest:
                del self._of_namespace[key[0]]
