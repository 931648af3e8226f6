"""A thread-safe store of the newest known version of each object of one kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
Key = tuple[str, str]


@dataclass(frozen=True)
class CachedObject(Generic[Value]):
    """One object.

    Attributes:
        key: Namespace and name.
        uid: Its uid.
        version: Its resource version, a number that grows with every change.
        group: Namespace and name of the object that it belongs to, such as its job.
        value: The object.
    """

    key: Key
    uid: str
    version: int
    group: Key
    value: Value


class ObjectStore(Generic[Value]):
    """The newest version of each object; late and repeated versions change nothing. Thread-safe.

    Args:
        on_removed: Called with each stored object that is removed.
    """

    def __init__(self, on_removed: Callable[[CachedObject[Value]], None] = lambda _: None) -> None:
        self._on_removed = on_removed
        self._lock = threading.Lock()
        self._objects: dict[Key, CachedObject[Value]] = {}
        self._groups: dict[Key, set[Key]] = {}
        # Uids that this operator deleted: earlier events must not restore them.
        self._deleted: set[str] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, cached: CachedObject[Value]) -> bool:
        """Store a version of an object; returns whether it is newer than the stored one."""
        with self._lock:
            before = self._objects.get(cached.key)
            if cached.uid in self._deleted or (before is not None and before.version >= cached.version):
                return False
            self._forget(before)
            self._objects[cached.key] = cached
            self._groups.setdefault(cached.group, set()).add(cached.key)
            return True

    def remove(self, key: Key, uid: str, *, before_event: bool = False) -> bool:
        """Remove a deleted object, but not a newer one of its name; returns whether it was stored.

        Args:
            key: Namespace and name.
            uid: Its uid.
            before_event: Whether the deletion is known before its event, so that earlier events may
                still arrive.
        """
        with self._lock:
            if before_event:
                self._deleted.add(uid)
            else:
                self._deleted.discard(uid)
            before = self._objects.get(key)
            if before is None or before.uid != uid:
                return False
            self._forget(before)
        self._on_removed(before)
        return True

    def get(self, key: Key) -> CachedObject[Value] | None:
        """The object with this name; None if there is none."""
        return self._objects.get(key)

    def of_group(self, group: Key) -> list[CachedObject[Value]]:
        """The objects of a group, sorted by name."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._groups.get(group, ()))]

    def all(self) -> list[CachedObject[Value]]:
        """All objects."""
        with self._lock:
            return list(self._objects.values())

    def _forget(self, cached: CachedObject[Value] | None) -> None:
        if cached is None:
            return
        self._objects.pop(cached.key, None)
        keys = self._groups.get(cached.group)
        if keys is not None:
            keys.discard(cached.key)
            if not keys:
                del self._groups[cached.group]
