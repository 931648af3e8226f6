"""Ranks that wait for a verdict: each request is answered when the verdict is known, or after a time.

A rank waits without a thread. It looks again when this replica has written a verdict, and otherwise once a
second, because another replica may have written it.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator

from wattloop.wire.training_messages import Answer

# Shorter than the time in which a response must be read, and than the client's timeout.
MAX_WAIT_SECONDS = 20.0
POLL_SECONDS = 1.0

Key = tuple[str, str]


class VerdictWaits:
    """Wakes waiting requests when a verdict of their recurrence was written. Thread-safe."""

    def __init__(self, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        self._max_wait_seconds = max_wait_seconds
        self._lock = threading.Lock()
        self._waiting: dict[Key, set[Callable[[], None]]] = {}

    def notify(self, key: Key) -> None:
        """A verdict of the recurrence was written. Called from any thread."""
        with self._lock:
            waiting = list(self._waiting.get(key, ()))
        for wake in waiting:
            wake()

    async def first_answer(
        self, key: Key, is_decided: Callable[[Answer], bool], look: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The first answer that is decided, or the latest one after the longest wait.

        `is_decided`: whether an answer has the verdict.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + self._max_wait_seconds
        with self._registered(key, lambda: _wake(loop, changed)):
            while True:
                # Looks after it has registered, so that no verdict is missed in between.
                answer = await look()
                if is_decided(answer) or loop.time() >= deadline:
                    return answer
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), POLL_SECONDS)
                changed.clear()

    @contextlib.contextmanager
    def _registered(self, key: Key, wake: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._waiting.setdefault(key, set()).add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._waiting[key].discard(wake)
                if not self._waiting[key]:
                    del self._waiting[key]


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
        loop.call_soon_threadsafe(changed.set)
