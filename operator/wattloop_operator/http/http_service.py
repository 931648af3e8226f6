"""An HTTP server that runs an ASGI application in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop.wire.operator_api import unix_url
from wattloop_operator.http.certificates import ServingCertificate, TlsLayer
from wattloop_operator.http.connection_limits import OVERLOADED, OpenConnections, RejectedRequests
from wattloop_operator.http.http_connection import Application, BoundedConnection
from wattloop_operator.memory_shares import BYTES_OF_CONNECTION, CONNECTIONS

logger = logging.getLogger(__name__)

MAX_CONCURRENCY = CONNECTIONS // BYTES_OF_CONNECTION // 2
# Of a server that the kubelet or Prometheus reads.
PROBE_CONCURRENCY = 64
# One server's connections take at most this part of the process's file descriptors: the database,
# the API server and the other servers need the rest.
DESCRIPTORS_PART = 4
BACKLOG = 1024
# Connections that are accepted before the event loop closes the descriptors of those that gave way to them.
MAX_ACCEPTED_AT_ONCE = 64
# After an error of `accept`, such as a lack of descriptors.
ACCEPT_PAUSE_SECONDS = 0.1
# At the end the running requests are answered for so long.
END_SECONDS = 5.0


class HttpService:
    """One HTTP server, which serves within a `with` block.

    It runs a bounded number of requests and has a bounded number of connections, of which each address has its share;
    see `OpenConnections`.

    Args:
        bind: The address to listen on; port 0 is any free port. A path is a Unix socket, which must not exist.
        certificate: Serves HTTPS with it, unless None.
        on_rejected: Called with the reason of each request that the application does not receive, and of each
            connection that is closed for a new one: `malformed`, or `overloaded` (too many connections or requests).
        max_concurrency: Number of requests that it runs at a time; None: `MAX_CONCURRENCY`.
        background: Entered before the server starts and left after it has ended, in the server's thread.

    Attributes:
        url: Its URL; that of a Unix socket is understood by `wattloop.wire.operator_api` alone.
        address: The address that it listens on, unless that is a Unix socket.

    Raises:
        OperationError: The address is in use.
    """

    address: Address

    def __init__(
        self,
        name: str,
        app: Application,
        bind: Address | Path,
        *,
        certificate: ServingCertificate | None = None,
        on_rejected: Callable[[str], None] = lambda _: None,
        max_concurrency: int | None = None,
        background: Sequence[AbstractContextManager[object]] = (),
    ) -> None:
        self.name = name
        self._app = app
        self._tls = None if certificate is None else certificate.context
        self._background = background
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # A server has twice as many connections as running requests.
        of_files = MAX_CONCURRENCY if files == resource.RLIM_INFINITY else files // DESCRIPTORS_PART // 2
        self.max_concurrency = min(MAX_CONCURRENCY if max_concurrency is None else max_concurrency, of_files)
        self._rejected = RejectedRequests(name, on_rejected)
        self._open = OpenConnections(2 * self.max_concurrency, lambda: self._rejected.count(OVERLOADED))
        self._connected: set[BoundedConnection] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._socket = _listen(name, bind)
        self._socket.setblocking(False)
        if isinstance(bind, Path):
            self.url = unix_url(bind)
        else:
            host, port = self._socket.getsockname()[:2]
            self.address = Address(host, port)
            self.url = f"{'https' if certificate else 'http'}://{self.address}"
        self._ending = asyncio.Event()
        self._thread = WatchedThread(self._serve, f"http-{name}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving. The socket listens already: a request that arrives earlier waits in its queue."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        logger.info("%s: serving %s", self.name, self.url)

    def stop(self) -> None:
        """Answer the running requests, then end."""
        self._thread.release()
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
        self._socket.close()

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.ExitStack() as stack:
            for each in self._background:
                stack.enter_context(each)
            runner.run(self._accept_until_the_end())

    async def _accept_until_the_end(self) -> None:
        self._loop.add_reader(self._socket, self._accept)
        try:
            await self._ending.wait()
        finally:
            self._loop.remove_reader(self._socket)
        for connection in list(self._connected):
            connection.end()
        deadline = self._loop.time() + END_SECONDS
        while self._connected and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connected):
            connection.abort()

    def _accept(self) -> None:
        """Accept the connections that wait, each of which may take the place of another one."""
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("%s: no connection can be accepted now: %s", self.name, error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)
                return
            if self._open.make_room():
                self._connect(accepted, address)
            else:
                accepted.close()

    def _accept_again(self) -> None:
        if not self._ending.is_set():
            self._loop.add_reader(self._socket, self._accept)

    def _connect(self, accepted: socket.socket, address: Any) -> None:
        # The address of a Unix socket's client is empty.
        peer = (str(address[0]), int(address[1])) if address else ("", accepted.fileno())
        # The event loop notices the end and closes the connection, in a TLS handshake too.
        close = functools.partial(_shut_down, accepted)
        connection = BoundedConnection(
            self._app,
            peer,
            close,
            tls=None if self._tls is None else TlsLayer(self._tls),
            rejected=self._rejected,
            connections=self._open,
            connected=self._connected,
        )
        self._open.add(peer, close)
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            # asyncio sets it of its own sockets alone. Else the last part of a response waits for the client to
            # acknowledge the first, 40 ms on a connection that is kept.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        connecting = self._loop.create_task(self._loop.connect_accepted_socket(lambda: connection, accepted))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _listen(name: str, bind: Address | Path) -> socket.socket:
    try:
        if isinstance(bind, Path):
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(bind))
            listening.listen(BACKLOG)
            return listening
        family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
        return socket.create_server((bind.host, bind.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OperationError(
            f"{name}: cannot listen on {bind}: {error.strerror or error}; choose another address"
        ) from error
