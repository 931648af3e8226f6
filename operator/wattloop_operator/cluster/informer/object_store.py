"""A thread-safe store of the newest known version of each object of one kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic_core

# What an object takes in memory, from the size of its JSON, measured with tracemalloc. A model of Wattloop's objects
# takes six times its JSON, as parsed JSON does. It counts ten times, since the whole operator was measured with shares
# of that size: what it derives from a job takes memory too. A version that is refused leaves its identity and a text.
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


Value = TypeVar("Value")


@dataclass(frozen=True)
class CachedObject(Generic[Value]):
    """One object.

    Attributes:
        key: Namespace and name.
        version: Its resource version, a number that grows with every change.
        group: Namespace and name of the object that it belongs to, such as its job.
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
            stored, refused = self._objects.get(key), self._refused.get(key)
        return max(0 if stored is None else stored.version, 0 if refused is None else refused.version)

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

    def has(self, key: Key, version: int) -> bool:
        """Whether this version of an object, or a newer one, is stored."""
        stored = self._objects.get(key)
        return stored is not None and stored.version >= version

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

    def _forget(self, cached: CachedObject[Value] | None) -> None:
        if cached is None:
            return
        self._objects.pop(cached.key, None)
        keys = self._groups.get(cached.group)
        if keys is not None:
            keys.discard(cached.key)
            if not keys:
                del self._groups[cached.group]
