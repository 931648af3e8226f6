"""Server-sent events that say that something has changed, so that an open page reads itself again.

A stream ends after `STREAM_SECONDS`, since the server gives no response more time, and the browser opens the next one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool

from wattloop.errors import WattloopError
from wattloop.printable import printable

STREAM_SECONDS = 40.0
INTERVAL_SECONDS = 1.0
MAX_STREAMS = 48
RETRY_MILLISECONDS = 500


class ChangeStreams:
    """The open streams of one source of jobs, which all read the same version.

    Args:
        read_version: Reads a text that changes when anything does.
        interval_seconds: How often it is read at most.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        read_version: Callable[[], str],
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_version = read_version
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, str, str] | None = None
        self._ended = threading.Event()
        self.open = 0

    def end(self) -> None:
        """End all streams, from any thread."""
        self._ended.set()

    async def events(self) -> AsyncIterator[str]:
        """The events of one stream: the version now, and each later one."""
        self.open += 1
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            until, sent = self._clock() + STREAM_SECONDS, None
            while self._clock() < until and not self._ended.is_set():
                latest = await run_in_threadpool(self._latest)
                if latest != sent:
                    name, text = sent = latest
                    yield f"event: {name}\ndata: {json.dumps(text)}\n\n"
                await asyncio.sleep(self._interval_seconds)
        finally:
            self.open -= 1

    def _latest(self) -> tuple[str, str]:
        """Name and text of the latest event: the version, or why it cannot be read."""
        with self._lock:
            now = self._clock()
            if self._known is None or now - self._known[0] >= self._interval_seconds:
                try:
                    self._known = now, "version", self._read_version()
                except WattloopError as error:
                    self._known = now, "failure", printable(str(error))
            return self._known[1:]
