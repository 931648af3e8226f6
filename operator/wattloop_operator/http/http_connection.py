"""One HTTP/1.1 connection between asyncio and an ASGI application, with time limits.

h11 parses and writes HTTP; `TlsLayer` decrypts in front of it. A request must arrive completely within
`REQUEST_SECONDS` of its first byte, or of the connection, its TLS handshake included; the client must read its response
within `RESPONSE_SECONDS`. Otherwise the connection is closed.
"""

from __future__ import annotations

import asyncio
import http
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import h11
from starlette.responses import JSONResponse, PlainTextResponse, Response

from wattloop_operator.http.certificates import TlsLayer
from wattloop_operator.http.connection_limits import MALFORMED, OVERLOADED, OpenConnections, Peer, RejectedRequests

logger = logging.getLogger(__name__)

# A request has at most 1 MiB: a client that takes longer to send one is gone or hostile.
REQUEST_SECONDS = 10.0
# Far longer than Wattloop's own clients wait for a response: a client that has not read it by then
# is gone, too.
RESPONSE_SECONDS = 60.0
# A body in chunks of one byte takes a second of processor time for 64 KiB, before any caller is authorized. No client
# of Wattloop sends chunks, and data is parsed in pieces, of which the first one tells.
PIECE_BYTES = 4096
# Of a body that the application has not taken yet.
MAX_WAITING_BODY_BYTES = 64 * 1024
# Answers without the application, each of which ends its connection.
CLOSE = {"connection": "close"}
IN_CHUNKS = JSONResponse({"detail": "send the body with its Content-Length, and not in chunks"}, 411, CLOSE)
INVALID = PlainTextResponse("Invalid HTTP request received.", 400, CLOSE)
UNAVAILABLE = PlainTextResponse("Service Unavailable", 503, CLOSE)
FAILED = PlainTextResponse("Internal Server Error", 500, CLOSE)

Application = Callable[[Any, Any, Any], Awaitable[None]]


# asyncio logs the representation of a protocol that fails.
@dataclass(eq=False, repr=False)
class BoundedConnection(asyncio.Protocol):
    """A connection that was accepted.

    Attributes:
        peer: The client, as it is counted.
        close_socket: Closes the connection at any moment, also before its transport exists.
        tls: TLS of the server; None: the connection has none.
        rejected: Counts the requests that the application does not receive.
        connections: Knows whether the connection waits for its client, and bounds the requests that run.
        connected: The connections that have a transport.
    """

    app: Application
    peer: Peer
    close_socket: Callable[[], None]
    _: KW_ONLY
    tls: TlsLayer | None
    rejected: RejectedRequests
    connections: OpenConnections
    connected: set[BoundedConnection]

    def __post_init__(self) -> None:
        self._http = h11.Connection(h11.SERVER)
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._request: _Request | None = None
        # The event loop itself would forget them.
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._is_ending = self._is_lingering = False
        self._has_body = True
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.connected.add(self)
        self._close_after(REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_lingering:
            return
        if self.tls is not None:
            try:
                data = self.tls.decrypted(data)
            except ssl.SSLError:
                # The alert says why; the client's own TLS gives it to its user.
                self._flush_tls()
                self._transport.close()
                return
            self._flush_tls()
        self._received += data
        self._parse()

    def eof_received(self) -> None:
        """See `asyncio.Protocol`: the connection is closed."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.Protocol`."""
        self._cancel_deadline()
        self.connected.discard(self)
        self.connections.remove(self.peer, self.close_socket)
        self.writable.set()
        if self._request is not None:
            self._request.disconnect()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable.set()

    def end(self) -> None:
        """Close the connection once the response to its present request is sent."""
        self._is_ending = True
        if self._request is None:
            self._close()

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def _parse(self) -> None:
        goes_on = True
        while goes_on and not self._is_closing:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                self._reject()
                return
            goes_on = self._feed() if event is h11.NEED_DATA else self._take(event)

    def _feed(self) -> bool:
        """Give the parser the next piece; returns whether there was one."""
        if not self._received:
            self._transport.resume_reading()
            return False
        if self._http.their_state is h11.IDLE and not self._http.trailing_data[0]:
            self._close_after(REQUEST_SECONDS)
        self._http.receive_data(bytes(self._received[:PIECE_BYTES]))
        del self._received[:PIECE_BYTES]
        return True

    def _take(self, event: object) -> bool:
        """Act on what was parsed; returns whether more is parsed now."""
        request = self._request
        match event:
            case h11.Request():
                return self._begin(event)
            case h11.Data() if request is not None:
                request.add_body(bytes(event.data))
                if not request.is_full:
                    return True
            case h11.EndOfMessage() if request is not None:
                request.end_body()
                self.connections.serve(self.peer)
                self._close_after(RESPONSE_SECONDS)
                return True
            case h11.Data() | h11.EndOfMessage():
                # The rest of a body whose response is sent.
                self._end_cycle()
                return True
        # The next request waits for the response to this one, or the body for the application.
        self._transport.pause_reading()
        return False

    def resume_parsing(self) -> None:
        """Parse on after the application has taken what there was of the body."""
        if not self._is_closing:
            self._parse()

    def _begin(self, event: h11.Request) -> bool:
        """Start the application for a request; returns whether its body is parsed."""
        headers = list(event.headers)
        self._has_body = event.method != b"HEAD"
        if any(name == b"transfer-encoding" for name, _ in headers):
            self._answer(IN_CHUNKS)
            return False
        self._request = request = _Request(self, self._http, self._scope(event, headers))
        task = self._loop.create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def _scope(self, event: h11.Request, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        raw_path, _, query = event.target.partition(b"?")
        client, server = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": event.http_version.decode("ascii"),
            "server": tuple(server[:2]) if isinstance(server, tuple) else None,
            "client": tuple(client[:2]) if isinstance(client, tuple) else None,
            "scheme": "http" if self.tls is None else "https",
            "method": event.method.decode("ascii"),
            "root_path": "",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
        }

    async def _run(self, request: _Request) -> None:
        if not self.connections.begin_request(self.peer[0]):
            self.rejected.count(OVERLOADED)
            self._answer(UNAVAILABLE)
            return
        try:
            await self.app(request.scope, request.receive, request.send)
            if not request.is_complete and not request.is_disconnected:
                raise RuntimeError("the application returned without a complete response")  # noqa: TRY301
        except Exception:
            logger.exception("%s %s: unexpected failure", request.scope["method"], request.scope["path"])
            if not request.has_started and not request.is_disconnected:
                self._answer(FAILED)
            elif not request.is_complete:
                self._transport.close()
        finally:
            self.connections.end_request(self.peer[0])

    def response_complete(self) -> None:
        """The response to the present request is written."""
        self._request = None
        if self._is_closing:
            return
        if self._http.our_state is h11.MUST_CLOSE or self._is_ending:
            self._close()
            return
        self.connections.wait(self.peer)
        is_sent = not self._transport.get_write_buffer_size()
        self._close_after(REQUEST_SECONDS if is_sent else RESPONSE_SECONDS)
        self._end_cycle()
        # The application's task goes on; the next request begins after it.
        self._loop.call_soon(self.resume_parsing)

    def _end_cycle(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()

    def _reject(self) -> None:
        self.rejected.count(MALFORMED)
        if self._request is not None:
            self._request.disconnect()
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self._answer(INVALID)
        else:
            self._transport.close()

    def _answer(self, answer: Response) -> None:
        """Answer without the application, and close the connection."""
        status = answer.status_code
        self.write(h11.Response(status_code=status, headers=answer.raw_headers, reason=_phrase(status)))
        self.write(h11.Data(data=bytes(answer.body) if self._has_body else b""))
        self.write(h11.EndOfMessage())
        self._close()

    def write(self, event: h11.Event) -> None:
        """Write a part of a response."""
        data = self._http.send(event)
        if not data or self._is_closing:
            return
        self._transport.write(data if self.tls is None else self.tls.encrypted(data))

    @property
    def _is_closing(self) -> bool:
        return self._is_lingering or self._transport.is_closing()

    def _close(self) -> None:
        """Close the connection when all that was written is sent.

        While the client still sends a request that is answered already, what it sends is dropped until it ends the
        connection. A closed socket would answer that with a reset, which may overtake the response.
        """
        if self.tls is not None:
            self.tls.close()
            self._flush_tls()
        self._close_after(RESPONSE_SECONDS)
        if self._http.their_state not in {h11.SEND_BODY, h11.ERROR}:
            self._transport.close()
            return
        self._is_lingering = True
        self._received.clear()
        self.connections.wait(self.peer)
        self._transport.resume_reading()
        if self._transport.get_write_buffer_size():
            return
        self._close_after(REQUEST_SECONDS)
        try:
            self._transport.write_eof()
        except OSError:
            # The client is gone.
            self._transport.abort()

    def _flush_tls(self) -> None:
        if self.tls is not None and (data := self.tls.pending()) and not self._transport.is_closing():
            self._transport.write(data)

    def _close_after(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = self._loop.call_later(seconds, self._transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Request:
    """A request and its response, as the ASGI application sees them.

    Attributes:
        scope: ASGI's description of the request.
        is_disconnected: Whether the client is gone.
        has_started: Whether the status of the response is written.
        is_complete: Whether all of the response is written.
    """

    def __init__(self, connection: BoundedConnection, parser: h11.Connection, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.is_disconnected = self.has_started = self.is_complete = False
        self._connection = connection
        self._http = parser
        self._body = bytearray()
        self._has_body_end = False
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether so much of the body waits for the application that no more is parsed."""
        return len(self._body) > MAX_WAITING_BODY_BYTES

    def add_body(self, data: bytes) -> None:
        """A part of the body was parsed."""
        self._body += data
        self._changed.set()

    def end_body(self) -> None:
        """The body is complete."""
        self._has_body_end = True
        self._changed.set()

    def disconnect(self) -> None:
        """The client is gone."""
        self.is_disconnected = True
        self._changed.set()

    async def receive(self) -> dict[str, Any]:
        """The next part of the body, then the disconnection; see ASGI."""
        if self._http.they_are_waiting_for_100_continue and not self.is_disconnected:
            self._connection.write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        if not self.is_disconnected and not self.is_complete:
            if not self._changed.is_set():
                self._connection.resume_parsing()
            await self._changed.wait()
            self._changed.clear()
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": not self._has_body_end}

    async def send(self, message: Any) -> None:
        """Write a part of the response; see ASGI."""
        await self._connection.writable.wait()
        if self.is_disconnected:
            return
        if not self.has_started:
            self.has_started = True
            status = message["status"]
            headers = [(b"date", formatdate(usegmt=True).encode()), *message.get("headers", ())]
            self._connection.write(h11.Response(status_code=status, headers=headers, reason=_phrase(status)))
            return
        self._connection.write(h11.Data(data=b"" if self.scope["method"] == "HEAD" else message.get("body", b"")))
        if not message.get("more_body", False):
            self._connection.write(h11.EndOfMessage())
            self.is_complete = True
            self._changed.set()
            self._connection.response_complete()


def _phrase(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
