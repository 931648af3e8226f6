"""The agent's socket: takes connections, bounds them, gives each request to `Verbs`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter

from wattloop_agent.lines import REQUEST_LIMIT_BYTES, decoded_request, encoded, number
from wattloop_agent.reader.callers import Callers, Peer
from wattloop_agent.reader.verbs import Verbs
from wattloop_agent.refusal import Reason, Refused, error_answer

logger = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 512
CONNECTIONS_LIMIT_OF_AN_OWNER = 64
LEAST_INTERVAL_SECONDS = 0.02
MOST_INTERVAL_SECONDS = 10.0
# A subscriber that takes nothing for this long is dropped; it loses nothing, counters are cumulative.
SLOW_SECONDS = 10.0


class Server:
    """Serves the agent's socket.

    Args:
        callers: Identifies connections.
        verbs: Answers.

    Attributes:
        refusals: How many requests were refused, by reason.
        connections: How many are open.
    """

    def __init__(self, callers: Callers, verbs: Verbs) -> None:
        self._callers = callers
        self._verbs = verbs
        self._by_owner: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listening: socket.socket) -> None:
        """Take connections from this listening socket."""
        self._server = await asyncio.start_unix_server(self._connect, sock=listening, limit=REQUEST_LIMIT_BYTES)

    async def close(self) -> None:
        """Take no more connections, and end those that are open."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connected(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._converse(reader, writer)
        except (ConnectionError, TimeoutError):
            logger.debug("caller gone")
        except Exception:
            logger.exception("a request failed in a way that nobody foresaw; its connection is closed")
        finally:
            self.connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.connections > CONNECTIONS_LIMIT:
                raise Refused(Reason.TOO_MANY, f"{CONNECTIONS_LIMIT} connections are open")  # noqa: TRY301
            peer = self._callers.peer(writer.get_extra_info("socket"))
        except Refused as refusal:
            await self._refuse(writer, refusal)
            return
        try:
            await self._counted(peer, reader, writer)
        finally:
            peer.close()

    async def _counted(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            owner = (await peer.caller()).owner
        except Refused as refusal:
            await self._refuse(writer, refusal)
            return
        self._by_owner[owner] += 1
        try:
            if self._by_owner[owner] > CONNECTIONS_LIMIT_OF_AN_OWNER:
                told = f"{owner} has {CONNECTIONS_LIMIT_OF_AN_OWNER} connections open; close some"
                await self._refuse(writer, Refused(Reason.TOO_MANY, told))
                return
            while await self._request(peer, reader, writer):
                pass
        finally:
            self._by_owner[owner] -= 1
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    async def _request(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return False
        except asyncio.LimitOverrunError:
            await self._refuse(
                writer, Refused(Reason.BAD_REQUEST, f"a request has {REQUEST_LIMIT_BYTES} bytes at most")
            )
            return False
        try:
            request = decoded_request(line)
            caller = await peer.caller()
            if request["verb"] == "subscribe":
                await self._stream(peer, request, writer)
                return False
            answer = {"result": await self._verbs.answer(caller, request)}
        except Refused as refusal:
            await self._refuse(writer, refusal)
            return True
        writer.write(encoded(answer))
        await writer.drain()
        return True

    async def _stream(self, peer: Peer, request: dict[str, object], writer: asyncio.StreamWriter) -> None:
        interval = number(request, "interval_seconds")
        if not LEAST_INTERVAL_SECONDS <= interval <= MOST_INTERVAL_SECONDS:
            raise Refused(
                Reason.BAD_REQUEST,
                f'"interval_seconds" is {interval:g}; from {LEAST_INTERVAL_SECONDS:g} to {MOST_INTERVAL_SECONDS:g}',
            )
        async with contextlib.aclosing(self._verbs.stream(peer.caller, request, interval)) as stream:
            async for readings in stream:
                writer.write(encoded({"result": readings}))
                if writer.is_closing():
                    return
                if writer.transport.get_write_buffer_size():
                    async with asyncio.timeout(SLOW_SECONDS):
                        await writer.drain()

    async def _refuse(self, writer: asyncio.StreamWriter, refusal: Refused) -> None:
        self.refusals[refusal.reason] += 1
        logger.info("refused", extra={"reason": refusal.reason, "told": refusal.message})
        writer.write(encoded(error_answer(refusal)))
        await writer.drain()
