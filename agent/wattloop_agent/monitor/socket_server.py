"""Serves the agent's socket: accepts and bounds connections, and dispatches requests.

Any caller may be hostile. After each request the event loop serves other connections, an owner has one request of a
kind in progress, and a connection can lose its slot to another (`connection_slots`).
"""

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections import Counter
from collections.abc import Mapping

from wattloop_agent.json_lines import decoded_request, number
from wattloop_agent.monitor.caller_connection import (
    CallerConnection,
    ChangeRates,
    PartialRequests,
    is_unanswered,
    newest_request,
)
from wattloop_agent.monitor.connection_slots import MAX_CONNECTIONS, ConnectionSlot, ConnectionSlots, KeyedLocks
from wattloop_agent.monitor.identity import Authenticator, Peer, SocketCaller
from wattloop_agent.monitor.loop_watchdog import WatchedTask
from wattloop_agent.monitor.monitor_verbs import MonitorVerbs
from wattloop_agent.refusals import Reason, RequestError, error_answer

logger = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS = 0.02
MAX_INTERVAL_SECONDS = 10.0
# The kubelet answers in milliseconds, and times out after three seconds.
MAX_IDENTIFICATION_SECONDS = 5.0
MAX_BAD_REQUESTS = 8
# The delay after each refusal, so that bad requests cost their sender more time than the agent.
REFUSAL_SECONDS = 0.01
MAX_PARTIAL_REQUEST_SECONDS = 10.0
SWEEP_SECONDS = 1.0
# Larger requests are decoded one at a time, since 64 KiB of JSON take a millisecond.
SMALL_REQUEST_BYTES = 4096
MAX_ACCEPTED_AT_ONCE = 32
# The pause after the machine has run out of descriptors or memory.
ACCEPT_PAUSE_SECONDS = 0.1
ACCEPT_LOG_SECONDS = 10.0
MAX_LOGGED_CHARACTERS = 200
# Requests that the driver's thread answers; the power controller answers the others. An owner may
# have one request of each kind in progress.
READS = frozenset({"gpus", "energy"})


class SocketServer:
    """Serves the agent's socket.

    Attributes:
        refusals: Number of refused requests, by reason.
        slots: The slots of the connections.
    """

    def __init__(
        self, authenticator: Authenticator, handlers: MonitorVerbs, connections_limit: int = MAX_CONNECTIONS
    ) -> None:
        self._authenticator = authenticator
        self._handlers = handlers
        self._locks = KeyedLocks()
        self._change_rates = ChangeRates()
        self._partial_requests = PartialRequests()
        self._tasks: dict[asyncio.Task[None], CallerConnection] = {}
        self._serving: list[WatchedTask] = []
        self._listening: socket.socket | None = None
        self.slots = ConnectionSlots(connections_limit)
        self.refusals: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._tasks)

    async def serve(self, listening: socket.socket) -> None:
        """Accept connections from a listening socket."""
        listening.setblocking(False)
        self._listening = listening
        self._serving = [WatchedTask(self._accept(listening), "accept"), WatchedTask(self._sweep(), "sweep")]

    async def close(self) -> None:
        """Stop accepting connections, and close the open ones."""
        for part in self._serving:
            await part.end()
        ending = [*self._tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        logged_seconds = -math.inf
        while True:
            try:
                for _ in range(MAX_ACCEPTED_AT_ONCE):
                    accepted, _ = await loop.sock_accept(listening)
                    self._connected(accepted)
            except OSError as error:
                if time.monotonic() - logged_seconds >= ACCEPT_LOG_SECONDS:
                    logged_seconds = time.monotonic()
                    logger.error("can't accept connections", extra={"error": error.strerror})  # noqa: TRY400
                self.slots.close_longest_idle()
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
            except Exception:  # of one connection, which is closed; others are accepted
                logger.exception("unexpected failure of a new connection")
            await asyncio.sleep(0)

    def _connected(self, accepted: socket.socket) -> None:
        connection = CallerConnection(accepted, self._partial_requests)
        try:
            peer = self._authenticator.peer(accepted)
        except RequestError as refusal:
            self._refuse_connection(connection, refusal, "unknown")
            return
        except BaseException:
            connection.close()
            raise
        task: asyncio.Task[None] | None = None

        def close(why: str) -> None:
            connection.send_last(
                RequestError(Reason.CONNECTION_CLOSED, f"the connection is closed: {why}; open another")
            )
            if task is not None:
                task.cancel()

        try:
            slot = self.slots.acquire(peer.owner, close)
        except RequestError as refusal:
            peer.close()
            self._refuse_connection(connection, refusal, peer.owner)
            return
        task = asyncio.create_task(self._serve(connection, peer, slot))
        self._tasks[task] = connection
        task.add_done_callback(lambda done: self._ended(done, connection, peer, slot))

    def _ended(self, task: asyncio.Task[None], connection: CallerConnection, peer: Peer, slot: ConnectionSlot) -> None:
        # Not in the task, since one that is cancelled before its first step runs no `finally`.
        self.slots.release(slot)
        peer.close()
        connection.close()
        del self._tasks[task]

    def _refuse_connection(self, connection: CallerConnection, refusal: RequestError, owner: str) -> None:
        self._count(refusal, owner)
        connection.send_last(refusal)
        connection.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            oldest = time.monotonic() - MAX_PARTIAL_REQUEST_SECONDS
            why = f"a request was incomplete for {MAX_PARTIAL_REQUEST_SECONDS:g} s"
            for task, connection in list(self._tasks.items()):
                if connection.partial_since_seconds is not None and connection.partial_since_seconds < oldest:
                    connection.send_last(RequestError(Reason.CONNECTION_CLOSED, f"the connection is closed: {why}"))
                    task.cancel()

    async def _serve(self, connection: CallerConnection, peer: Peer, slot: ConnectionSlot) -> None:
        try:
            self.slots.identify(slot, (await _identified(peer)).has_gpus)
            bad_requests = 0
            while bad_requests < MAX_BAD_REQUESTS:
                reason = await self._request(connection, peer, slot)
                if reason is Reason.CONNECTION_CLOSED:
                    return
                bad_requests = bad_requests + 1 if reason is Reason.BAD_REQUEST else 0
                await asyncio.sleep(REFUSAL_SECONDS if reason is not None else 0)
            message = f"the connection is closed after {MAX_BAD_REQUESTS} bad requests"
            await self._refuse(connection, RequestError(Reason.CONNECTION_CLOSED, message), peer.owner)
        except RequestError as refusal:
            with contextlib.suppress(OSError):
                await self._refuse(connection, refusal, peer.owner)
        except OSError:
            logger.debug("caller gone")
        except Exception:
            logger.exception("unexpected failure of a request; closing its connection", extra={"owner": peer.owner})

    async def _request(self, connection: CallerConnection, peer: Peer, slot: ConnectionSlot) -> Reason | None:
        """Answer one request.

        Returns the reason if it was refused, and `CONNECTION_CLOSED` after the last.
        """
        slot.idle_seconds = time.monotonic()
        line = await connection.line()
        slot.idle_seconds = None
        if line is None:
            return Reason.CONNECTION_CLOSED
        try:
            request = await self._decoded(line)
            if request["verb"] == "subscribe":
                await self._stream(connection, peer, slot, request)
                return Reason.CONNECTION_CLOSED
            if is_unanswered(request):
                return await self._unanswered(connection, peer, slot, request)
            answer: dict[str, object] = {"result": await self._answer(peer, slot, request)}
        except RequestError as refusal:
            await self._refuse(connection, refusal, peer.owner)
            return refusal.reason
        await connection.send(answer)
        return None

    async def _decoded(self, line: bytes) -> dict[str, object]:
        if len(line) <= SMALL_REQUEST_BYTES:
            return decoded_request(line)
        async with self._locks.hold("large requests"):
            await asyncio.sleep(0)
            return decoded_request(line)

    async def _answer(self, peer: Peer, slot: ConnectionSlot, request: Mapping[str, object]) -> object:
        async with self._locks.hold((peer.owner, request["verb"] in READS)):
            caller = await peer.caller()
            slot.has_gpus = caller.has_gpus
            return await self._handlers.answer(caller, request)

    async def _unanswered(
        self, connection: CallerConnection, peer: Peer, slot: ConnectionSlot, request: dict[str, object]
    ) -> Reason | None:
        """Execute the newest of the unanswered requests that wait on a connection."""
        try:
            async with self._locks.hold((peer.owner, False)):
                delay = self._change_rates.delay_seconds(peer.owner)
                if delay:
                    await asyncio.sleep(delay)
                caller = await peer.caller()
                slot.has_gpus = caller.has_gpus
                await self._handlers.answer(caller, newest_request(connection, request))
        except RequestError as refusal:
            self._count(refusal, peer.owner)
            await connection.send({**error_answer(refusal), "unanswered": True})
            return refusal.reason
        return None

    async def _stream(
        self, connection: CallerConnection, peer: Peer, slot: ConnectionSlot, request: dict[str, object]
    ) -> None:
        interval = number(request, "interval_seconds")
        if not MIN_INTERVAL_SECONDS <= interval <= MAX_INTERVAL_SECONDS:
            raise RequestError(
                Reason.BAD_REQUEST,
                f'"interval_seconds" is {interval:g}; from {MIN_INTERVAL_SECONDS:g} to {MAX_INTERVAL_SECONDS:g}',
            )
        if not (caller := await peer.caller()).has_gpus:
            raise RequestError(Reason.NOT_YOURS, f"{caller.owner} has no GPU, so there is nothing to subscribe to")
        try:
            self.slots.subscribe(slot)
        except RequestError:
            # Subscriptions that are just closing free their slots meanwhile.
            await asyncio.sleep(REFUSAL_SECONDS)
            self.slots.subscribe(slot)
        sending = asyncio.create_task(self._send_readings(connection, peer, request, interval))
        ending = asyncio.create_task(connection.ended())
        try:
            await asyncio.wait({sending, ending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            slot.is_subscribed = False
            for task in (sending, ending):
                task.cancel()
            await asyncio.gather(sending, ending, return_exceptions=True)

    async def _send_readings(
        self, connection: CallerConnection, peer: Peer, request: dict[str, object], interval: float
    ) -> None:
        async with contextlib.aclosing(self._handlers.stream(peer.caller, request, interval)) as stream:
            async for readings in stream:
                await connection.send({"result": readings})

    async def _refuse(self, connection: CallerConnection, refusal: RequestError, owner: str) -> None:
        self._count(refusal, owner)
        await connection.send(error_answer(refusal))

    def _count(self, refusal: RequestError, owner: str) -> None:
        self.refusals[refusal.reason] += 1
        message = refusal.message[:MAX_LOGGED_CHARACTERS]
        logger.info("refused", extra={"owner": owner, "reason": refusal.reason, "error": message})


async def _identified(peer: Peer) -> SocketCaller:
    try:
        async with asyncio.timeout(MAX_IDENTIFICATION_SECONDS):
            return await peer.caller()
    except TimeoutError as error:
        message = f"your GPUs could not be determined within {MAX_IDENTIFICATION_SECONDS:g} s; try again"
        raise RequestError(Reason.UNAVAILABLE, message) from error
