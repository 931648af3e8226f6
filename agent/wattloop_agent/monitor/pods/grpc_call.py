"""One unary gRPC call over a unix socket, by h2.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md describes the protocol.

The grpc library would more than double the monitor's memory for the one call a second that it makes.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.exceptions

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024


class GrpcCallError(Exception):
    """The call was not answered, or with a status other than OK; the message says which."""


def unary_call(path: Path, method: str, request: bytes, timeout_seconds: float) -> bytes:
    """Call a method, ``/package.Service/Method``, with an encoded message, and return its answer's message.

    Raises:
        GrpcCallError: It was not answered in time, or with an error.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            return _Call(connection, deadline).run(method, request)
    except (OSError, h2.exceptions.H2Error, ValueError) as error:
        raise GrpcCallError(f"{path}: {method}: {error}") from error


class _Call:
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self._answer = bytearray()
        self._status: dict[str, str] = {}
        self._ended = False

    def run(self, method: str, request: bytes) -> bytes:
        self._http.initiate_connection()
        stream = self._http.get_next_available_stream_id()
        self._http.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            ],
        )
        self._http.send_data(stream, struct.pack(">?I", False, len(request)) + request, end_stream=True)
        while not self._ended:
            self._socket.sendall(self._http.data_to_send())
            self._take(self._received())
        return self._message()

    def _received(self) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionResetError("it closed the connection")
        return received

    def _take(self, received: bytes) -> None:
        for event in self._http.receive_data(received):
            if isinstance(event, h2.events.DataReceived):
                self._answer += event.data
                if len(self._answer) > ANSWER_LIMIT_BYTES:
                    raise ValueError(f"the answer has more than {ANSWER_LIMIT_BYTES} bytes")
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                self._status.update({str(name): str(value) for name, value in event.headers})
            elif isinstance(event, h2.events.StreamEnded):
                self._ended = True
            elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                raise ConnectionResetError(f"it ended the call with code {event.error_code}")

    def _message(self) -> bytes:
        status = self._status.get("grpc-status")
        if status != "0":
            raise ValueError(f"status {status}: {self._status.get('grpc-message', 'no message')}")
        if len(self._answer) < 5:
            raise ValueError("the answer has no message")
        compressed, size = struct.unpack(">?I", self._answer[:5])
        if compressed or len(self._answer) != 5 + size:
            raise ValueError("the answer has an unrequested encoding")
        return bytes(self._answer[5:])
