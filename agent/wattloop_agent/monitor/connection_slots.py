"""Shares the agent's socket fairly: connection slots, subscriptions, requests in progress.

A connection starts among those whose owner's GPUs are not known yet, and moves to those of owners with GPUs or of
owners without. Each of the three groups has a limit, so that none takes the slots of the others. When slots run out, an
idle connection is closed. The number of all slots follows from the limit on file descriptors.
"""

import asyncio
import contextlib
import logging
import math
import resource
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass

from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

# The socket, and the pidfd of the connected process.
DESCRIPTORS_PER_CONNECTION = 2
# For the agent's own files: /proc, ledger, leases, the kubelet, metrics connections, owners' pidfds.
RESERVED_DESCRIPTORS = 256
MAX_CONNECTIONS = 512
MIN_CONNECTIONS = 16
WANTED_DESCRIPTORS = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_CONNECTION * MAX_CONNECTIONS
MAX_CONNECTIONS_PER_GPU_OWNER = 32
MAX_CONNECTIONS_WITHOUT_GPUS = 4
# Fractions of all slots: of the owners without GPUs together, and of connections whose owner is not known yet.
SHARE_WITHOUT_GPUS = 1 / 4
SHARE_UNIDENTIFIED = 1 / 8
MAX_SUBSCRIPTIONS = 64
# Each process of a pod that measures energy windows has one.
MAX_SUBSCRIPTIONS_PER_OWNER = 16


@dataclass(eq=False)
class ConnectionSlot:
    """The slot of one connection.

    Attributes:
        owner: The owner of the connection.
        close: Closes the connection after it has lost its slot, and sends it the reason.
        has_gpus: Whether the owner has GPUs; None: not known yet.
        idle_seconds: Since when it waits for a complete request, on the monotonic clock; None: a
            request is in progress.
        is_subscribed: Whether it has a subscription.
    """

    owner: str
    close: Callable[[str], None]
    has_gpus: bool | None = None
    idle_seconds: float | None = None
    is_subscribed: bool = False


class ConnectionSlots:
    """The slots of all connections, up to a limit; `closed` counts those closed to make room for others."""

    def __init__(self, limit: int) -> None:
        self._max_unidentified = max(4, math.floor(limit * SHARE_UNIDENTIFIED))
        self._max_identified = limit - self._max_unidentified
        self._max_without_gpus = max(MAX_CONNECTIONS_WITHOUT_GPUS, math.floor(limit * SHARE_WITHOUT_GPUS))
        # In the order of arrival.
        self._slots: dict[ConnectionSlot, None] = {}
        self.closed = 0

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self, owner: str, close: Callable[[str], None]) -> ConnectionSlot:
        """Get a slot for a new connection; a refusal is `Reason.TOO_MANY`."""
        own = [slot for slot in self._slots if slot.owner == owner]
        known = next((slot.has_gpus for slot in own if slot.has_gpus is not None), None)
        self._refuse_too_many(owner, own, has_gpus=known is not False)
        waiting = [slot for slot in self._slots if slot.has_gpus is None]
        if len(waiting) >= self._max_unidentified:
            own_count = sum(each.owner == owner for each in waiting)
            self._close_one_of_largest_owner(waiting, own_count, "connections whose owner is not identified yet")
        slot = ConnectionSlot(owner, close)
        self._slots[slot] = None
        return slot

    def identify(self, slot: ConnectionSlot, has_gpus: bool) -> None:
        """Record whether the owner of a slot has GPUs; `Reason.TOO_MANY`: its group has no slot left."""
        identified = [each for each in self._slots if each.has_gpus is not None and each is not slot]
        own = [each for each in identified if each.owner == slot.owner]
        self._refuse_too_many(slot.owner, own, has_gpus=has_gpus)
        if not has_gpus:
            without = [each for each in identified if not each.has_gpus]
            if len(without) >= self._max_without_gpus and not self._close_longest_idle(without):
                message = f"{self._max_without_gpus} connections of owners without GPUs are open; try again"
                raise RequestError(Reason.TOO_MANY, message)
        if len(identified) >= self._max_identified and not self._close_longest_idle(identified):
            if own or not has_gpus:
                raise RequestError(Reason.TOO_MANY, f"{self._max_identified} connections are open; try again")
            self._close_one_of_largest_owner(identified, 1, "connections")
        slot.has_gpus = has_gpus

    def release(self, slot: ConnectionSlot) -> None:
        """Free the slot of a connection that has ended."""
        self._slots.pop(slot, None)

    def subscribe(self, slot: ConnectionSlot) -> None:
        """Turn a connection into a subscription; a refusal is `Reason.TOO_MANY`."""
        subscriptions = [each for each in self._slots if each.is_subscribed]
        of_owner = sum(each.owner == slot.owner for each in subscriptions)
        if of_owner >= MAX_SUBSCRIPTIONS_PER_OWNER:
            raise RequestError(Reason.TOO_MANY, f"{slot.owner} has {of_owner} subscriptions; end some")
        # Half of the subscriptions are reserved for the first of each owner.
        if len(subscriptions) >= (MAX_SUBSCRIPTIONS // 2 if of_owner else MAX_SUBSCRIPTIONS):
            raise RequestError(Reason.TOO_MANY, f"{len(subscriptions)} subscriptions are open; try again")
        slot.is_subscribed = True

    def close_longest_idle(self) -> bool:
        """Make room by closing an idle connection; returns whether there was one."""
        return self._close_longest_idle(self._slots)

    def _close_longest_idle(self, slots: Iterable[ConnectionSlot]) -> bool:
        per_owner = Counter(each.owner for each in self._slots)

        def priority(slot: ConnectionSlot) -> tuple[bool, bool, float]:
            # Owners without GPUs lose theirs first, an owner's only connection goes last.
            return bool(slot.has_gpus), per_owner[slot.owner] == 1, slot.idle_seconds or 0.0

        longest = min((each for each in slots if each.idle_seconds is not None), key=priority, default=None)
        if longest is None:
            return False
        self._close(longest, "it was idle, and no other slot is free")
        return True

    def _close_one_of_largest_owner(self, slots: Iterable[ConnectionSlot], more_than: int, what: str) -> None:
        """Close the oldest connection of the owner with the most of these slots, if it has more than `more_than`."""
        by_owner = Counter(each.owner for each in slots)
        largest, count = by_owner.most_common(1)[0]
        if count <= more_than:
            raise RequestError(Reason.TOO_MANY, f"{by_owner.total()} {what} are open; try again")
        self._close(next(each for each in slots if each.owner == largest), f"{largest} has {count} {what} open")

    def _close(self, slot: ConnectionSlot, why: str) -> None:
        self._slots.pop(slot, None)
        self.closed += 1
        slot.close(why)

    @staticmethod
    def _refuse_too_many(owner: str, own: Iterable[ConnectionSlot], has_gpus: bool) -> None:
        limit = MAX_CONNECTIONS_PER_GPU_OWNER if has_gpus else MAX_CONNECTIONS_WITHOUT_GPUS
        if sum(1 for _ in own) >= limit:
            raise RequestError(Reason.TOO_MANY, f"{owner} has {limit} connections open; close some")


class KeyedLocks:
    """A lock per key, first come first served.

    Holders of different keys do not wait for each other.

    Example:
        >>> async def two() -> int:
        ...     locks = KeyedLocks()
        ...     async with locks.hold("pod:a"), locks.hold("pod:b"):
        ...         return len(locks)
        >>> asyncio.run(two())
        2
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the lock of a key for the duration of a block."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1


def raised_limit() -> int:
    """Raise this process's soft limit on descriptors, as far as the hard limit allows, and return that in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED_DESCRIPTORS:
        return WANTED_DESCRIPTORS
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_allowed(limit: int) -> int:
    """The number of connections that a descriptor limit allows beside the agent's own files.

    Example:
        >>> connections_allowed(20_000), connections_allowed(1024), connections_allowed(64)
        (512, 384, 16)
    """
    free = (limit - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, free))


def allowed_connections() -> int:
    """Raise the descriptor limit, and return the number of connections that it allows."""
    limit = raised_limit()
    allowed = connections_allowed(limit)
    if allowed < MAX_CONNECTIONS:
        extra = {"limit": limit, "wanted": WANTED_DESCRIPTORS, "connections": allowed}
        logger.warning("fewer connections: the hard limit of open files (RLIMIT_NOFILE) is low", extra=extra)
    return allowed
