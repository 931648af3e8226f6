"""The reader's line to the setter: a request at a time, with a time limit, found again when the setter is new."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wattloop.agent import ANSWER_LIMIT_BYTES
from wattloop_agent.lines import encoded
from wattloop_agent.refusal import Reason, Refused

LONGEST_START_SECONDS = 60.0


class Opener(Protocol):
    """Gives a connected socket to the setter.

    Attributes:
        start_seconds: How long the setter behind a new connection may take to start; 0: it runs already.
    """

    start_seconds: float

    async def open(self) -> socket.socket:
        """A new connection; the setter behind an older one is gone or hangs.

        Raises:
            OSError: There is none now.
        """


class PathOpener:
    """A setter that someone else keeps running, listening at a path.

    Args:
        path: Its socket.
    """

    start_seconds = 0.0

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> socket.socket:
        """Connect to it.

        Raises:
            OSError: Nothing listens there.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(self._path))
        except OSError:
            connection.close()
            raise
        return connection


class SetterLink:
    """Asks the setter.

    Args:
        opener: Where a connection comes from.
        timeout_seconds: How long an answer may take, after the setter's start; a setter that takes longer hangs, and
            the connection is dropped.
    """

    def __init__(self, opener: Opener, timeout_seconds: float) -> None:
        self._opener = opener
        self._timeout_seconds = timeout_seconds
        self._start_seconds = opener.start_seconds
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Mapping[str, object]) -> Any:
        """The setter's result.

        Raises:
            Refused: By the setter; or `Reason.UNAVAILABLE`: it is gone or hangs. What it had begun, it undoes.
        """
        # A caller that goes away must not leave half an exchange behind: the exchange is carried through without it.
        task = asyncio.create_task(self._asked(encoded(request)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(task)
        if "error" in answer:
            raise Refused(Reason(answer["error"]["reason"]), answer["error"]["message"])
        return answer["result"]

    async def _asked(self, line: bytes) -> dict[str, Any]:
        async with self._lock:
            reused = self._streams is not None
            try:
                return await self._exchange(line)
            except (OSError, ValueError, EOFError) as error:
                # Every verb is idempotent, and the setter that comes next undoes what the one before had begun.
                if not reused or isinstance(error, TimeoutError):
                    raise self._unavailable(error) from error
            try:
                return await self._exchange(line)
            except (OSError, ValueError, EOFError) as error:
                raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Refused:
        told = f"it did not answer in {self._timeout_seconds:g} s" if isinstance(error, TimeoutError) else error
        return Refused(Reason.UNAVAILABLE, f"the setter, which alone may change GPUs, is not there ({told}); try again")

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        # On a busy machine Python alone may take longer to start than a setter may take to answer: ended for that, none
        # would ever start.
        is_new = self._streams is None
        started = self._start_seconds if is_new else 0.0
        try:
            async with asyncio.timeout(started + self._timeout_seconds):
                answer = await self._round_trip(line)
        except BaseException as error:
            if is_new and isinstance(error, TimeoutError):
                # Twice as long for the next one: it may hang as this one did, or only be slow.
                self._start_seconds = min(2 * started, LONGEST_START_SECONDS)
            # An answer that still comes must not be taken for that of the next request.
            self.close()
            raise
        self._start_seconds = self._opener.start_seconds
        return answer

    async def _round_trip(self, line: bytes) -> dict[str, Any]:
        if self._streams is None:
            connection = await self._opener.open()
            self._streams = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_LIMIT_BYTES)
        reader, writer = self._streams
        writer.write(line)
        await writer.drain()
        answer = await reader.readline()
        if not answer.endswith(b"\n"):
            raise EOFError("it closed the connection")
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def close(self) -> None:
        """Drop the connection; the next request opens another."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].close()
            self._streams = None
