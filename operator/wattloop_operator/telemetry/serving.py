"""An ASGI application served over HTTP from a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import Any

import uvicorn

from wattloop.commands.settings import Address
from wattloop.errors import CannotError

logger = logging.getLogger(__name__)

# A body has 64 KiB at most, so that a client that takes longer than this is gone or means harm.
IDLE_SECONDS = 10
MOST_CONNECTIONS = 2_000


class HttpService:
    """One HTTP server.

    Args:
        name: What it is, for messages.
        app: The ASGI application.
        bind: Where to listen; port 0 is any that is free.
        certificate: Certificate chain; with it, it serves HTTPS.
        key: The certificate's private key.

    Raises:
        CannotError: The address is taken, or the certificate cannot be used.
    """

    def __init__(
        self, name: str, app: Any, bind: Address, *, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        self.name = name
        self._socket = _listening(name, bind)
        host, port = self._socket.getsockname()[:2]
        self.address = Address(host, port)
        self.url = f"{'https' if certificate else 'http'}://{self.address}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=IDLE_SECONDS,
            limit_concurrency=MOST_CONNECTIONS,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            timeout_graceful_shutdown=5,
        )
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise CannotError(f"{name}: the certificate {certificate} with the key {key}: {error}") from error
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
        self._server.run(sockets=[self._socket])


def _listening(name: str, bind: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    try:
        return socket.create_server((bind.host, bind.port), family=family, backlog=1024)
    except OSError as error:
        raise CannotError(f"{name}: cannot listen at {bind}: {error.strerror or error}; choose another one") from error
