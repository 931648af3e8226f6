"""An ASGI application served over HTTP from a thread of its own."""

from __future__ import annotations

import contextlib
import functools
import logging
import resource
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import uvicorn

from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.http.bounded_connection import BoundedConnection
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.http.rejected_requests import RefusedRequests

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10
MAX_CONNECTIONS = 2_000
# Of the files that the process may have open, what one server's connections may take: the rest is for the database, the
# API server and the other servers.
PART_OF_FILES = 4


class HttpService:
    """One HTTP server.

    Args:
        name: What it is, for messages.
        app: The ASGI application.
        bind: Where to listen; port 0 is any that is free.
        certificate: With it, it serves HTTPS.
        refused: Told the reason of each request that the application did not see: `malformed`, or `crowded` (beyond
            the bound of connections).
        beside: Entered before it serves and left once it serves no more.

    Raises:
        OperationError: The address is taken.
    """

    def __init__(
        self,
        name: str,
        app: Any,
        bind: Address,
        *,
        certificate: ServingCertificate | None = None,
        refused: Callable[[str], None] = lambda _: None,
        beside: AbstractContextManager[object] | None = None,
    ) -> None:
        self.name = name
        self._beside = contextlib.nullcontext() if beside is None else beside
        self._socket = _listening(name, bind)
        host, port = self._socket.getsockname()[:2]
        self.address = Address(host, port)
        self.url = f"{'https' if certificate else 'http'}://{self.address}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=functools.partial(BoundedConnection, refused=RefusedRequests(name, refused)),  # type: ignore[arg-type]
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            limit_concurrency=_most_served(),
            server_header=False,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=f"http-{name}", daemon=True)

    def start(self) -> None:
        """Serve."""
        self._thread.start()
        logger.info("%s: serving %s", self.name, self.url)

    def stop(self) -> None:
        """Answer what was asked, then end."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        with self._beside:
            self._server.run(sockets=[self._socket])


def _most_served() -> int:
    """How many connections are served at once; twice as many are held, to say so."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // PART_OF_FILES // 2)


def _listening(name: str, bind: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    try:
        return socket.create_server((bind.host, bind.port), family=family, backlog=1024)
    except OSError as error:
        raise OperationError(
            f"{name}: cannot listen at {bind}: {error.strerror or error}; choose another one"
        ) from error
