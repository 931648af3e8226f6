"""Objects of one kind as they were seen last, by watching, by listing or by the answers of own writes."""

from __future__ import annotations

import threading
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
        version: Its resource version, a number that rises with every change.
        group: What it belongs to, such as its job.
        value: The object.
    """

    key: Key
    uid: str
    version: int
    group: Key
    value: Value


class ObjectStore(Generic[Value]):
    """The newest state of every object of a kind. What comes late or twice changes nothing; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Key, CachedObject[Value]] = {}
        self._groups: dict[Key, set[Key]] = {}
        # Uids that this operator deleted: an event from before must not bring them back.
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, held: CachedObject[Value]) -> bool:
        """Take in an object; returns whether it is news."""
        with self._lock:
            before = self._held.get(held.key)
            if held.uid in self._gone or (before is not None and before.version >= held.version):
                return False
            self._forget(before)
            self._held[held.key] = held
            self._groups.setdefault(held.group, set()).add(held.key)
            return True

    def remove(self, key: Key, uid: str, *, by_us: bool = False) -> bool:
        """Forget an object that is gone; one of its name that has come since stays. Returns whether it was there.

        Args:
            key: Namespace and name.
            uid: Its uid.
            by_us: Whether its end is known before its event: events from before may still come.
        """
        with self._lock:
            if by_us:
                self._gone.add(uid)
            else:
                self._gone.discard(uid)
            before = self._held.get(key)
            if before is None or before.uid != uid:
                return False
            self._forget(before)
            return True

    def get(self, key: Key) -> CachedObject[Value] | None:
        """The object of this name."""
        return self._held.get(key)

    def of_group(self, group: Key) -> list[CachedObject[Value]]:
        """The objects of a group, by name."""
        with self._lock:
            return [self._held[key] for key in sorted(self._groups.get(group, ()))]

    def all(self) -> list[CachedObject[Value]]:
        """All objects."""
        with self._lock:
            return list(self._held.values())

    def _forget(self, held: CachedObject[Value] | None) -> None:
        if held is None:
            return
        self._held.pop(held.key, None)
        keys = self._groups.get(held.group)
        if keys is not None:
            keys.discard(held.key)
            if not keys:
                del self._groups[held.group]
