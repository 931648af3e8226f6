"""An HTTP server that records reports and answers them as configured."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler], None]


def answering(code: int, body: bytes = b'{"stop": false, "reason": ""}', **headers: str) -> Behaviour:
    """A behaviour that gives every request the same answer."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


@dataclass
class ReportServer:
    """The recorded requests, and the behaviour that answers them."""

    url: str = ""
    behaviour: Behaviour = field(default_factory=lambda: answering(200))
    reports: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running_report_server() -> Iterator[ReportServer]:
    """Serves during the block."""
    server = ReportServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.reports.append(json.loads(body))
            server.tokens.append(self.headers["Authorization"])
            server.paths.append(self.path)
            server.behaviour(self)

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{listening.server_port}/v1/namespaces/team/recurrences/digits-0"
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
