"""The event loop's connection to the power controller: one request at a time, with a timeout and reconnection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

from wattloop.agent import ANSWER_LIMIT_BYTES
from wattloop_agent.lines import encoded
from wattloop_agent.monitor.power_controller_opening import AnswerTime, Opener
from wattloop_agent.request_error import Reason, RequestError


class PowerControllerLink:
    """Carries the callers' requests to the power controller.

    Args:
        opener: Opens connections.
        timeout_seconds: How long an answer may take; a power controller that takes longer hangs.
    """

    def __init__(self, opener: Opener, timeout_seconds: float) -> None:
        self._opener = opener
        self._time = AnswerTime(opener, timeout_seconds)
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Mapping[str, object]) -> Any:
        """The power controller's result.

        Raises:
            RequestError: By the power controller; or `Reason.UNAVAILABLE`: it is gone or hangs. What it had
            begun, it undoes.
        """
        # A caller that goes away must not leave half an exchange behind: the exchange is carried through without it.
        task = asyncio.create_task(self._asked(encoded(request)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return result_of(await asyncio.shield(task))

    async def _asked(self, line: bytes) -> dict[str, Any]:
        async with self._lock:
            reused = self._streams is not None
            try:
                return await self._exchange(line)
            except (OSError, ValueError, EOFError) as error:
                # Every verb is idempotent, and the power controller that comes next undoes what the one
                # before had begun.
                if not reused or isinstance(error, TimeoutError):
                    raise self._time.refusal(error) from error
            try:
                return await self._exchange(line)
            except (OSError, ValueError, EOFError) as error:
                raise self._time.refusal(error) from error

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        is_new = self._streams is None
        try:
            async with asyncio.timeout(self._time.seconds(is_new)):
                answer = await self._round_trip(line)
        except BaseException as error:
            self._time.failed(is_new, error)
            # An answer that still comes must not be taken for that of the next request.
            self.close()
            if isinstance(error, TimeoutError):
                await asyncio.to_thread(self._opener.hangs)
            raise
        self._time.answered()
        return answer

    async def _round_trip(self, line: bytes) -> dict[str, Any]:
        if self._streams is None:
            connection = await self._opened()
            self._streams = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_LIMIT_BYTES)
        reader, writer = self._streams
        writer.write(line)
        await writer.drain()
        answer = await reader.readline()
        if not answer.endswith(b"\n"):
            raise EOFError("it closed the connection")
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    async def _opened(self) -> socket.socket:
        opening = asyncio.create_task(asyncio.to_thread(self._opener.open))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unused)
            raise

    def close(self) -> None:
        """Drop the connection; the next request opens another."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].close()
            self._streams = None


def result_of(answer: Mapping[str, Any]) -> Any:
    """The result of an answer of the power controller.

    Raises:
        RequestError: The power controller refused the request.
    """
    if "error" in answer:
        raise RequestError(Reason(answer["error"]["reason"]), answer["error"]["message"])
    return answer["result"]


def _close_unused(opening: asyncio.Task[socket.socket]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
