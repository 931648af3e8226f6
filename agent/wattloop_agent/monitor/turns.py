"""One request of an owner at a time, so that owners take turns whatever one of them sends over how many connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable


class Turns:
    """Gives turns to owners, to each in the order in which it asked; different owners do not wait for each other.

    Example:
        >>> async def two() -> int:
        ...     turns = Turns()
        ...     async with turns.turn("pod:a"), turns.turn("pod:b"):
        ...         return len(turns)
        >>> asyncio.run(two())
        2
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """The turn of this one for the time of a block."""
        lock, users = self._locks.get(who) or (asyncio.Lock(), 0)
        self._locks[who] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(who)
            if users > 1:
                self._locks[who] = lock, users - 1
