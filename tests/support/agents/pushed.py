"""A ledger and a bounds store in memory for the pusher, and operators with faults over real HTTP."""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from support.http_stand_in import http_server, json_body, respond
from support.reporting.json_web_token import json_web_token
from wattloop.wire.node_energy import GpuBounds, NodeGpu, PodGpuUsage

USAGE = PodGpuUsage("uid-1", "team", "digits-0-abc", "train", "GPU-0", False, 5_000, 10, 1.0, 6.0, False)
Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


@dataclass
class MemoryLedger:
    """A ledger for the pusher."""

    entries: list[PodGpuUsage] = field(default_factory=lambda: [USAGE])
    id: str = "ledger"

    def usages(self) -> tuple[PodGpuUsage, ...]:
        return tuple(self.entries)

    def gpus(self) -> tuple[NodeGpu, ...]:
        return (NodeGpu("GPU-0", 9_000, 10, 6.0, "counter", "NVIDIA H200"),)

    def forget(self, pod_uids: Iterable[str]) -> None:
        forgotten = set(pod_uids)
        self.entries = [each for each in self.entries if not (each.ended and each.pod_uid in forgotten)]

    def use(self, millijoules: int, *, ended: bool = False) -> None:
        """Add energy and a second to the first usage."""
        first = self.entries[0]
        more = first.energy_millijoules + millijoules
        self.entries[0] = replace(first, energy_millijoules=more, time_seconds=first.time_seconds + 1.0, ended=ended)


@dataclass
class MemoryBounds:
    """A store of bounds for the pusher."""

    replaced: list[tuple[GpuBounds, ...]] = field(default_factory=list)

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        self.replaced.append(tuple(bounds))


@dataclass
class OperatorStandIn:
    """Answers reports with the test's function.

    Attributes:
        answer: Returns status and body of the response to a report.
        tokens: The Authorization headers of the reports.
    """

    answer: Answer
    url: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)

    def receive(self, request: BaseHTTPRequestHandler) -> None:
        """Keep a report, and answer it."""
        report: Any = json_body(request)
        self.reports.append({"path": request.path, **report})
        self.tokens.append(request.headers["Authorization"])
        respond(request, *self.answer(report))
        self.arrived.set()


def push_settings(folder: Path, operator: OperatorStandIn, trusted: bytes = b"") -> dict[str, object]:
    """The settings of an agent that reports to this operator ten times a second, and trusts a certificate."""
    token, certificates = folder / "token", folder / "ca.crt"
    token.write_text(json_web_token("agent"))
    certificates.write_bytes(trusted)
    reports = {"push_url": operator.url, "push_token_file": token, "push_interval": 0.1, "node_name": "node-1"}
    return reports | ({"push_ca_file": certificates} if trusted else {})


def accepting(_: dict[str, Any]) -> tuple[int, bytes]:
    return 200, b'{"acknowledged": [], "bounds": null}'


@contextlib.contextmanager
def running_operator(answer: Answer = accepting, tls: ssl.SSLContext | None = None) -> Iterator[OperatorStandIn]:
    """Run an operator while the block runs, over HTTPS if it has a TLS context."""
    operator = OperatorStandIn(answer)
    with http_server(operator.receive, tls) as operator.url:
        yield operator
