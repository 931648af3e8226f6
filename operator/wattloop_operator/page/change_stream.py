"""Server-sent events that say that something has changed, so that an open page reads itself again.

A stream ends after `STREAM_SECONDS`, since the server gives no response more time, and the browser opens the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

from starlette.concurrency import run_in_threadpool

from wattloop.errors import WattloopError
from wattloop.printable import printable

STREAM_SECONDS = 40.0
INTERVAL_SECONDS = 1.0
MAX_STREAMS = 48
# A server of several viewers leaves room for the others.
MAX_STREAMS_OF_VIEWER = 12
RETRY_MILLISECONDS = 500


class OpenStreams:
    """The open streams of a server.

    Attributes:
        of_users: How many each user has, by name.
    """

    def __init__(self) -> None:
        self.of_users: Counter[str] = Counter()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def one_of(self, user: str) -> Iterator[None]:
        """Count one more of a user."""
        self.of_users[user] += 1
        try:
            yield
        finally:
            self.of_users[user] -= 1
            if not self.of_users[user]:
                del self.of_users[user]

    def end(self) -> None:
        """End all streams, from any thread."""
        self._ended.set()

    @property
    def have_ended(self) -> bool:
        """Whether the streams end."""
        return self._ended.is_set()


class ChangeStreams:
    """The open streams of one source of jobs, which all read the same version.

    Args:
        read_version: Reads a text that changes when anything does.
        server: The open streams of the server.
        interval_seconds: How often it is read at most.
        clock: Monotonic seconds.
        max_open: How many of the server's streams may be of this user.
        user: Who opens them; he may have several sources, one for each of his tokens.
    """

    def __init__(
        self,
        read_version: Callable[[], str],
        server: OpenStreams,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_open: int = MAX_STREAMS,
        user: str = "",
    ) -> None:
        self._read_version = read_version
        self._server = server
        self._max_open = max_open
        self._user = user
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, str, str] | None = None

    def refusal(self) -> str:
        """Why no further stream can be opened; empty if one can."""
        of_user = self._server.of_users[self._user]
        if of_user >= self._max_open:
            return f"{of_user} pages are open already; close one, or reload this one by hand"
        if self._server.of_users.total() >= MAX_STREAMS:
            return f"this server has {MAX_STREAMS} open pages already; reload this one by hand"
        return ""

    async def events(self) -> AsyncIterator[str]:
        """The events of one stream: the version now, and each later one."""
        with self._server.one_of(self._user):
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            until, sent = self._clock() + STREAM_SECONDS, None
            while self._clock() < until and not self._server.have_ended:
                latest = await run_in_threadpool(self._latest)
                if latest != sent:
                    name, text = sent = latest
                    yield f"event: {name}\ndata: {json.dumps(text)}\n\n"
                await asyncio.sleep(self._interval_seconds)

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
