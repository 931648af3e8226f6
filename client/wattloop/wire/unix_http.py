"""HTTP over a Unix socket: its URLs, and the handler of `urllib` that connects to one.

The path of the socket, percent-encoded, is in the place of the host: ``http+unix://%2Frun%2Freports.sock/v1``. A
folder that only one user can enter keeps all others from such a server; a port of the loopback interface is open to
every user of the machine.
"""

from __future__ import annotations

import functools
import http.client
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

SCHEME = "http+unix"


def unix_url(path: Path) -> str:
    """The URL of the server at a socket.

    Example:
        >>> unix_url(Path("/run/reports.sock"))
        'http+unix://%2Frun%2Freports.sock'
    """
    return f"{SCHEME}://{quote(str(path), safe='')}"


def is_unix_url(url: str) -> bool:
    """Whether a URL has the form of `unix_url`."""
    return url.startswith(f"{SCHEME}://")


def split_unix_url(url: str) -> tuple[Path, str]:
    """The socket of a URL, and the URL that its server is asked for.

    Example:
        >>> split_unix_url("http+unix://%2Frun%2Freports.sock/v1/x")
        (PosixPath('/run/reports.sock'), 'http://localhost/v1/x')
    """
    host, _, selector = url.removeprefix(f"{SCHEME}://").partition("/")
    return Path(unquote(host)), f"http://localhost/{selector}"


class UnixHandler(urllib.request.HTTPHandler):
    """Opens requests of the scheme ``http`` at a socket.

    Args:
        path: The socket.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """See `urllib.request.HTTPHandler`."""
        return self.do_open(functools.partial(UnixConnection, self._path), request)


class UnixConnection(http.client.HTTPConnection):
    """A connection to a socket.

    Args:
        path: The socket.
        host: The host of the request.
        options: As of `http.client.HTTPConnection`.
    """

    def __init__(self, path: Path, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._path = path

    def connect(self) -> None:
        """See `http.client.HTTPConnection`."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
