"""The monitor's two connections to the power controller, with timeouts and reconnection.

`PowerControllerLink` carries callers' requests on the event loop. `HeartbeatLink` blocks, and
belongs to the thread that checks the owners, so that no caller delays a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from wattloop.gpus.agent import ANSWER_LIMIT_BYTES
from wattloop_agent.json_lines import encoded
from wattloop_agent.monitor.power_controller_connector import EXCHANGE_ERRORS, Connector, ExchangePolicy, result_of


class PowerControllerLink:
    """Sends callers' requests to the power controller.

    Args:
        connector: Connects to it.
        timeout_seconds: Time that an answer may take; a power controller that takes longer counts
            as hung.
    """

    def __init__(self, connector: Connector, timeout_seconds: float) -> None:
        self._connector = connector
        self._policy = ExchangePolicy(connector, timeout_seconds)
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, request: Mapping[str, object]) -> Any:
        """The power controller's result.

        Raises:
            RequestError: From the power controller; or `Reason.UNAVAILABLE`: it is gone or hangs,
                and undoes what it had begun.
        """
        # A cancelled caller must not leave half an exchange on the connection, so the exchange goes
        # on without it.
        task = asyncio.create_task(self._answer(encoded(request)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return result_of(await asyncio.shield(task))

    async def _answer(self, line: bytes) -> dict[str, Any]:
        async with self._lock:
            while True:
                is_new = self._streams is None
                try:
                    return await self._exchange(line, is_new)
                except EXCHANGE_ERRORS as error:
                    self._policy.require_repeatable(is_new, error)

    async def _exchange(self, line: bytes, is_new: bool) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._policy.timeout_seconds(is_new)):
                answer = await self._round_trip(line)
        except BaseException as error:
            self._policy.failed(is_new, error)
            # A late answer must not be taken for that of the next request.
            self.close()
            if isinstance(error, TimeoutError):
                await asyncio.to_thread(self._connector.handle_timeout)
            raise
        self._policy.succeeded()
        return answer

    async def _round_trip(self, line: bytes) -> dict[str, Any]:
        if self._streams is None:
            connection = await self._connect()
            self._streams = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_LIMIT_BYTES)
        reader, writer = self._streams
        writer.write(line)
        await writer.drain()
        answer = await reader.readline()
        if not answer.endswith(b"\n"):
            raise EOFError("it closed the connection")
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    async def _connect(self) -> socket.socket:
        connecting = asyncio.create_task(asyncio.to_thread(self._connector.connect))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_unused)
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].close()
            self._streams = None


class HeartbeatLink:
    """Sends one thread's requests to the power controller.

    Args:
        connector: Connects to it.
        timeout_seconds: Time that an answer may take; a power controller that takes longer counts
            as hung.
    """

    def __init__(self, connector: Connector, timeout_seconds: float) -> None:
        self._connector = connector
        self._policy = ExchangePolicy(connector, timeout_seconds)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._aborted = False

    def request(self, request: Mapping[str, object]) -> Any:
        """The power controller's result.

        Raises:
            RequestError: From the power controller; or `Reason.UNAVAILABLE`: it is gone or hangs.
        """
        line = encoded(request)
        while True:
            is_new = self._connection is None
            try:
                return result_of(self._exchange(line, is_new))
            except EXCHANGE_ERRORS as error:
                self._policy.require_repeatable(is_new, error)

    def abort(self) -> None:
        """Interrupt the request in progress and refuse further ones; from any thread."""
        with self._lock:
            self._aborted = True
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens another.

        Call it in the thread that sends the requests.
        """
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _exchange(self, line: bytes, is_new: bool) -> dict[str, Any]:
        try:
            answer = self._round_trip(line, self._policy.timeout_seconds(is_new))
        except BaseException as error:
            self._policy.failed(is_new, error)
            # A late answer must not be taken for that of the next request.
            self.close()
            if isinstance(error, TimeoutError):
                self._connector.handle_timeout()
            raise
        self._policy.succeeded()
        return answer

    def _round_trip(self, line: bytes, timeout_seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_seconds
        connection = self._connected()
        connection.settimeout(timeout_seconds)
        connection.sendall(line)
        received = b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left)
            part = connection.recv(65536)
            if not part:
                raise EOFError("it closed the connection")
            received += part
            if len(received) > ANSWER_LIMIT_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
        decoded: dict[str, Any] = json.loads(received)
        return decoded

    def _connected(self) -> socket.socket:
        # Checked before connecting: the connector of a laptop would start another power controller.
        if self._connection is None and not self._aborted:
            connection = self._connector.connect()
            with self._lock:
                self._connection = connection
        if self._aborted or self._connection is None:
            raise ConnectionAbortedError("the agent ends")
        return self._connection


def _close_unused(connecting: asyncio.Task[socket.socket]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
