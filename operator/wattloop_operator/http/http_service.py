"""An HTTP server that runs an ASGI application in a thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import resource
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import uvicorn

from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop.wire.unix_http import unix_url
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.http.connections import (
    OVERLOADED,
    Application,
    BoundedConnection,
    RejectedRequests,
    limit_concurrency,
)
from wattloop_operator.http.open_connections import BoundedListener, OpenConnections
from wattloop_operator.memory_shares import BYTES_OF_CONNECTION, CONNECTIONS

logger = logging.getLogger(__name__)

# asyncio gives each TLS connection a buffer of 256 KiB before its client has sent a byte. A record of TLS has 16 KiB.
TLS_BUFFER_BYTES = 32 * 1024
SSLProtocol.max_size = TLS_BUFFER_BYTES

KEEP_ALIVE_SECONDS = 10
# A server has twice as many connections as running requests.
MAX_CONCURRENCY = CONNECTIONS // BYTES_OF_CONNECTION // 2
# Of a server that the kubelet or Prometheus reads.
PROBE_CONCURRENCY = 64
# One server's connections take at most this part of the process's file descriptors: the database,
# the API server and the other servers need the rest.
DESCRIPTORS_PART = 4
BACKLOG = 1024


class HttpService:
    """One HTTP server, which serves within a `with` block.

    It runs a bounded number of requests and has a bounded number of connections, of which each address has its share;
    see `limit_concurrency` and `OpenConnections`.

    Args:
        name: Its name, for messages.
        app: The ASGI application.
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
        self._background = background
        self.max_concurrency = _max_concurrency(MAX_CONCURRENCY if max_concurrency is None else max_concurrency)
        rejected = RejectedRequests(name, on_rejected)
        connections = OpenConnections(2 * self.max_concurrency, lambda: rejected.count(OVERLOADED))
        self._socket = BoundedListener(_listen(name, bind), connections)
        if isinstance(bind, Path):
            self.url = unix_url(bind)
        else:
            host, port = self._socket.getsockname()[:2]
            self.address = Address(host, port)
            self.url = f"{'https' if certificate else 'http'}://{self.address}"
        config = uvicorn.Config(
            limit_concurrency(app, self.max_concurrency, rejected),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=functools.partial(  # type: ignore[arg-type]
                BoundedConnection, rejected=rejected, open_connections=connections
            ),
            # uvloop does not accept by the listening socket's own method.
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._thread = WatchedThread(self._serve, f"http-{name}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving. The socket listens already: a request that arrives earlier waits in its queue."""
        self._thread.start()
        logger.info("%s: serving %s", self.name, self.url)

    def stop(self) -> None:
        """Answer the running requests, then end."""
        self._thread.release()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self._background:
                stack.enter_context(each)
            self._server.run(sockets=[self._socket])


def _max_concurrency(most: int) -> int:
    """Number of requests that one server runs; it holds twice as many connections."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else min(most, files // DESCRIPTORS_PART // 2)


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
