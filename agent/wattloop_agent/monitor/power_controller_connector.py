"""Connects to the power controller, and decides on timeouts and repeated requests."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wattloop_agent.refusals import Reason, RequestError

MAX_START_SECONDS = 60.0
# Raised by an exchange that failed on a connection: the power controller is gone, hangs, or sent no
# valid answer.
EXCHANGE_ERRORS = (OSError, ValueError, EOFError)


class Connector(Protocol):
    """Connects to the power controller; called from any thread.

    Attributes:
        start_seconds: Time that the power controller behind a new connection may take to start; 0:
            it runs already.
    """

    start_seconds: float

    def connect(self) -> socket.socket:
        """A new connection; the power controller behind an older one is gone or hangs.

        Raises:
            OSError: The power controller is not available.
        """

    def handle_timeout(self) -> None:
        """Called after a timeout: the power controller must process no further request."""


class SocketConnector:
    """Connects to a power controller that the kubelet or an administrator runs.

    Args:
        path: Its socket.
        timeout_seconds: Time that it may take to accept the connection.
    """

    start_seconds = 0.0

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def connect(self) -> socket.socket:
        """A new connection.

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

    def handle_timeout(self) -> None:
        """Do nothing: a power controller that hangs ends itself."""


class ExchangePolicy:
    """The timeout of the next answer, and whether a failed request is repeated.

    The timeout is longer where the power controller behind a new connection has to start first: on
    a busy machine Python alone may take longer to start than an answer may take, so that a power
    controller killed for it would never start.

    Args:
        connector: Gives the time that a start may take.
        timeout_seconds: For the answer of a running power controller.

    Attributes:
        start_seconds: Time that the next start may take; it doubles after each start that was too
            slow.
    """

    def __init__(self, connector: Connector, timeout_seconds: float) -> None:
        self._connector = connector
        self._timeout_seconds = timeout_seconds
        self.start_seconds = connector.start_seconds

    def timeout_seconds(self, is_new: bool) -> float:
        """For the next answer, on a new connection or on a reused one."""
        return self._timeout_seconds + (self.start_seconds if is_new else 0.0)

    def succeeded(self) -> None:
        """Record an answer."""
        self.start_seconds = self._connector.start_seconds

    def failed(self, is_new: bool, error: BaseException) -> None:
        """Record a failure.

        The next power controller may hang as this one did, or only be slow to start.
        """
        if is_new and isinstance(error, TimeoutError):
            self.start_seconds = min(2 * self.start_seconds, MAX_START_SECONDS)

    def require_repeatable(self, is_new: bool, error: Exception) -> None:
        """Refuse to repeat a request, unless it failed on a reused connection without a timeout.

        Repeating is safe: every verb is idempotent, and the next power controller undoes what the
        last one had begun.

        Raises:
            RequestError: `Reason.UNAVAILABLE`.
        """
        if not is_new and not isinstance(error, TimeoutError):
            return
        cause = f"no answer in {self._timeout_seconds:g} s" if isinstance(error, TimeoutError) else error
        raise RequestError(
            Reason.UNAVAILABLE,
            f"the power controller, which alone may change GPUs, is unavailable ({cause}); try again",
        ) from error


def result_of(answer: Mapping[str, Any]) -> Any:
    """The result in an answer of the power controller.

    Raises:
        RequestError: The power controller refused the request.
    """
    if "error" in answer:
        raise RequestError(Reason(answer["error"]["reason"]), answer["error"]["message"])
    return answer["result"]
