"""The line to the power controller of the thread that looks after the owners: blocking, and shared with no caller."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from wattloop.agent import ANSWER_LIMIT_BYTES
from wattloop_agent.lines import encoded
from wattloop_agent.monitor.power_controller_link import result_of
from wattloop_agent.monitor.power_controller_opening import AnswerTime, Opener


class HeartbeatLink:
    """Carries one thread's requests to the power controller; found again when the power controller is new.

    Args:
        opener: Opens connections.
        timeout_seconds: How long an answer may take; a power controller that takes longer hangs.
    """

    def __init__(self, opener: Opener, timeout_seconds: float) -> None:
        self._opener = opener
        self._time = AnswerTime(opener, timeout_seconds)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._ended = False

    def ask(self, request: Mapping[str, object]) -> Any:
        """The power controller's result.

        Raises:
            RequestError: By the power controller; or `Reason.UNAVAILABLE`: it is gone or hangs.
        """
        line = encoded(request)
        reused = self._connection is not None
        try:
            return result_of(self._exchange(line))
        except (OSError, ValueError, EOFError) as error:
            if not reused or isinstance(error, TimeoutError):
                raise self._time.refusal(error) from error
        try:
            return result_of(self._exchange(line))
        except (OSError, ValueError, EOFError) as error:
            raise self._time.refusal(error) from error

    def end(self) -> None:
        """Cut off the request under way, and carry no other; from any thread."""
        with self._lock:
            self._ended = True
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Drop the connection; the next request opens another. In the thread that asks."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _exchange(self, line: bytes) -> dict[str, Any]:
        is_new = self._connection is None
        try:
            answer = self._round_trip(line, self._time.seconds(is_new))
        except BaseException as error:
            self._time.failed(is_new, error)
            # An answer that still comes must not be taken for that of the next request.
            self.close()
            if isinstance(error, TimeoutError):
                self._opener.hangs()
            raise
        self._time.answered()
        return answer

    def _round_trip(self, line: bytes, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        connection = self._connected()
        connection.settimeout(seconds)
        connection.sendall(line)
        received = b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left)
            part = connection.recv(65536)
            if not part:
                raise EOFError("it closed the connection")
            received += part
            if len(received) > ANSWER_LIMIT_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
        decoded: dict[str, Any] = json.loads(received)
        return decoded

    def _connected(self) -> socket.socket:
        # Before another one is opened: to a power controller that this process started, that would be
        # another power controller.
        if self._connection is None and not self._ended:
            opened = self._opener.open()
            with self._lock:
                self._connection = opened
        if self._ended or self._connection is None:
            raise ConnectionAbortedError("the agent ends")
        return self._connection
