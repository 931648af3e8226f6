"""How a link connects to the power controller, and how long the power controller may take to answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Protocol

from wattloop_agent.request_error import Reason, RequestError

MAX_START_SECONDS = 60.0


class Opener(Protocol):
    """Gives a connected socket to the power controller; called from any thread.

    Attributes:
        start_seconds: How long the power controller behind a new connection may take to start; 0: it runs already.
    """

    start_seconds: float

    def open(self) -> socket.socket:
        """A new connection; the power controller behind an older one is gone or hangs.

        Raises:
            OSError: There is none now.
        """

    def hangs(self) -> None:
        """The last power controller did not answer in time: it must carry out no further request."""


class PathOpener:
    """A power controller that someone else keeps running, listening at a path.

    Args:
        path: Its socket.
        timeout_seconds: How long the power controller may take to accept the connection.
    """

    start_seconds = 0.0

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def open(self) -> socket.socket:
        """Connect to it.

        Raises:
            OSError: Nothing listens there, or the power controller accepts no connection in time.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_seconds)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection

    def hangs(self) -> None:
        """A power controller that hangs ends by itself."""


class AnswerTime:
    """How long the next answer may take: longer where the power controller behind a new connection has to start first.

    On a busy machine Python alone may take longer to start than a power controller may take to answer: ended
    for that, none would
    ever start.

    Args:
        opener: Says how long a start may take.
        timeout_seconds: For the answer of a power controller that runs.
    """

    def __init__(self, opener: Opener, timeout_seconds: float) -> None:
        self._opener = opener
        self._timeout_seconds = timeout_seconds
        self.start_seconds = opener.start_seconds

    def seconds(self, is_new: bool) -> float:
        """For the next answer, over a new connection or the one before."""
        return self._timeout_seconds + (self.start_seconds if is_new else 0.0)

    def answered(self) -> None:
        """The power controller has answered."""
        self.start_seconds = self._opener.start_seconds

    def failed(self, is_new: bool, error: BaseException) -> None:
        """The power controller has not answered. The one that starts next may hang as this one did, or only be slow."""
        if is_new and isinstance(error, TimeoutError):
            self.start_seconds = min(2 * self.start_seconds, MAX_START_SECONDS)

    def refusal(self, error: Exception) -> RequestError:
        """The refusal that a caller gets."""
        told = f"it did not answer in {self._timeout_seconds:g} s" if isinstance(error, TimeoutError) else error
        return RequestError(
            Reason.UNAVAILABLE, f"the power controller, which alone may change GPUs, is not there ({told}); try again"
        )
