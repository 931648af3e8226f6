"""A ledger and guard rails in memory, as the pusher sees them, and operators that misbehave over real HTTP."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wattloop.node_energy import GpuBounds, NodeGpu, PodGpuUsage

USAGE = PodGpuUsage("uid-1", "team", "digits-0-abc", "train", "GPU-0", False, 5_000, 10, 1.0, 6.0, False)
Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


@dataclass
class MemoryLedger:
    """Implements the pusher's `EnergyLedger`."""

    held: list[PodGpuUsage] = field(default_factory=lambda: [USAGE])
    id: str = "ledger"

    def usages(self) -> tuple[PodGpuUsage, ...]:
        return tuple(self.held)

    def gpus(self) -> tuple[NodeGpu, ...]:
        return (NodeGpu("GPU-0", 9_000, 10, 6.0, "counter", "NVIDIA H200"),)

    def forget(self, pod_uids: Iterable[str]) -> None:
        gone = set(pod_uids)
        self.held = [each for each in self.held if not (each.ended and each.pod_uid in gone)]

    def use(self, millijoules: int, *, ended: bool = False) -> None:
        """The first pod uses so much more in a second."""
        first = self.held[0]
        more = first.energy_millijoules + millijoules
        self.held[0] = replace(first, energy_millijoules=more, time_seconds=first.time_seconds + 1.0, ended=ended)


@dataclass
class MemoryBounds:
    """Implements the pusher's `BoundsStore`."""

    told: list[tuple[GpuBounds, ...]] = field(default_factory=list)

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        self.told.append(tuple(bounds))


@dataclass
class OperatorStandIn:
    """Answers reports as the test says.

    Attributes:
        answer: Makes status and body of a report's.
        reports: What came.
        tokens: With what.
    """

    answer: Answer
    url: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)


def accepting(_: dict[str, Any]) -> tuple[int, bytes]:
    return 200, b'{"acknowledged": [], "bounds": null}'


@contextlib.contextmanager
def running_operator(answer: Answer = accepting, tls: ssl.SSLContext | None = None) -> Iterator[OperatorStandIn]:
    """An operator for as long as the block lasts; by HTTPS where it is given a certificate."""
    operator = OperatorStandIn(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operator.reports.append({"path": self.path, **report})
            operator.tokens.append(self.headers["Authorization"])
            status, body = operator.answer(report)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            operator.arrived.set()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A caller that does not trust the certificate hangs up."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    operator.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield operator
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
