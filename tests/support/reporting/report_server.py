"""An HTTP server that records reports and answers them as configured."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_stand_in import Behaviour, http_server, json_body, respond


def answering(code: int, body: bytes = b'{"stop": false, "reason": ""}', **headers: str) -> Behaviour:
    """A behaviour that gives every request the same answer."""
    return lambda request: respond(request, code, body, **headers)


@dataclass
class ReportServer:
    """The recorded requests, and the behaviour that answers them."""

    url: str = ""
    behaviour: Behaviour = field(default_factory=lambda: answering(200))
    reports: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def receive(self, request: BaseHTTPRequestHandler) -> None:
        """Record a request, and answer it."""
        self.reports.append(json_body(request))
        self.tokens.append(request.headers["Authorization"])
        self.paths.append(request.path)
        self.behaviour(request)


@contextlib.contextmanager
def running_report_server() -> Iterator[ReportServer]:
    """Serves during the block."""
    server = ReportServer()
    with http_server(server.receive) as url:
        server.url = f"{url}/v1/namespaces/team/recurrences/digits-0"
        yield server
