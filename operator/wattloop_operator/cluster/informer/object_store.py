"""A thread-safe store of the newest known version of each object of one kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from wattloop_operator.cluster.informer.object_bytes import REFUSED_BYTES, Key, NamespaceBytes

Value = TypeVar("Value")


@dataclass(frozen=True)
class CachedObject(Generic[Value]):
    """One object.

    Attributes:
        key: Namespace and name.
        uid: Its uid.
        version: Its resource version, a number that grows with every change.
        group: Namespace and name of the object that it belongs to, such as its job.
        value: The object.
        size_bytes: Bytes of memory that it counts.
    """

    key: Key
    uid: str
    version: int
    group: Key
    value: Value
    size_bytes: int = 0


@dataclass(frozen=True)
class RefusedObject:
    """A version of an object that is not stored.

    Attributes:
        uid: The object's uid.
        version: The refused version.
        problem: Why it is not stored, with a remedy.
        template_bytes: Size of the template of a job that its namespace has no room for; 0: the version is never
            stored.
        readable: Whether more than its identity is known.
        group: As of a `CachedObject`; None if nothing of the group waits for it.
    """

    uid: str
    version: int
    problem: str
    template_bytes: int = 0
    readable: bool = True
    group: Key | None = None


class ObjectStore(Generic[Value]):
    """The newest version of each object; late and repeated versions change nothing. Thread-safe.

    An object whose newest version is refused stays in its last good version.

    Args:
        on_removed: Called with each stored object that is removed.
    """

    def __init__(self, on_removed: Callable[[CachedObject[Value]], None] = lambda _: None) -> None:
        self._on_removed = on_removed
        self._lock = threading.Lock()
        self._objects: dict[Key, CachedObject[Value]] = {}
        self._groups: dict[Key, set[Key]] = {}
        self._refused: dict[Key, RefusedObject] = {}
        # Uids that this operator deleted: earlier events must not restore them.
        self._deleted: set[str] = set()
        self._bytes = NamespaceBytes()

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, cached: CachedObject[Value]) -> bool:
        """Store a version of an object; returns whether it is newer than the stored one."""
        with self._lock:
            before = self._objects.get(cached.key)
            if cached.uid in self._deleted or (before is not None and before.version >= cached.version):
                return False
            self._forget(before)
            self._refused.pop(cached.key, None)
            self._objects[cached.key] = cached
            self._groups.setdefault(cached.group, set()).add(cached.key)
            self._count(cached.key)
            return True

    def refuse(self, key: Key, refused: RefusedObject) -> bool:
        """Remember a version that is not stored; returns whether it is newer than the known ones."""
        with self._lock:
            stored, before = self._objects.get(key), self._refused.get(key)
            if refused.uid in self._deleted or (before is not None and before.version >= refused.version):
                return False
            if stored is not None and stored.version > refused.version:
                return False
            self._refused[key] = refused
            self._count(key)
            return True

    def refused(self, key: Key) -> RefusedObject | None:
        """The refused version of an object, if it is the newest."""
        return self._refused.get(key)

    def refused_of_group(self, group: Key) -> dict[Key, RefusedObject]:
        """The objects of a group whose newest version is refused."""
        with self._lock:
            return {key: refused for key, refused in self._refused.items() if refused.group == group}

    def missing(self, listed: Collection[Key], namespace: str, list_version: int) -> list[CachedObject[Value]]:
        """The stored objects that a list does not have although it is not older; refused ones are forgotten.

        Args:
            listed: The keys of the list.
            namespace: The namespace of the list; empty: all.
            list_version: Its version.
        """

        def is_missing(key: Key, version: int) -> bool:
            return key not in listed and namespace in ("", key[0]) and version <= list_version

        with self._lock:
            for key, refused in list(self._refused.items()):
                if is_missing(key, refused.version):
                    del self._refused[key]
                    self._count(key)
            return [each for each in self._objects.values() if is_missing(each.key, each.version)]

    def unreadable(self) -> frozenset[Key]:
        """The objects of whose newest version only the identity can be read."""
        with self._lock:
            return frozenset(key for key, refused in self._refused.items() if not refused.readable)

    def known_version(self, key: Key) -> int:
        """The newest version that was stored or refused; 0 if there is none."""
        with self._lock:
            return self._known_version(key)

    def forget_refused(self, key: Key) -> None:
        """Forget a refused version, so that it is looked at again."""
        with self._lock:
            self._refused.pop(key, None)
            self._count(key)

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
            refused = self._refused.get(key)
            if refused is not None and refused.uid == uid:
                del self._refused[key]
                self._count(key)
            before = self._objects.get(key)
            if before is None or before.uid != uid:
                return False
            self._forget(before)
            self._count(key)
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

    def bytes_of(self, namespace: str) -> int:
        """Bytes of memory that a namespace's objects count, refused versions included."""
        return self._bytes.of_namespace(namespace)

    def _count(self, key: Key) -> None:
        stored = self._objects.get(key)
        refused_bytes = REFUSED_BYTES if key in self._refused else 0
        self._bytes.set(key, (0 if stored is None else stored.size_bytes) + refused_bytes)

    def _known_version(self, key: Key) -> int:
        stored, refused = self._objects.get(key), self._refused.get(key)
        return max(0 if stored is None else stored.version, 0 if refused is None else refused.version)

    def _forget(self, cached: CachedObject[Value] | None) -> None:
        if cached is None:
            return
        self._objects.pop(cached.key, None)
        keys = self._groups.get(cached.group)
        if keys is not None:
            keys.discard(cached.key)
            if not keys:
                del self._groups[cached.group]
