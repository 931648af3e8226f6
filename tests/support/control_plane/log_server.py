"""The part of a kubelet that serves the logs of containers to the API server.

It serves the lines that a test writes, with times, and follows a log until the test ends it.
"""

import datetime
import tempfile
import threading
import urllib.parse
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from kubernetes import client

from support.control_plane.certificates import CertificateAuthority

ADDRESS = "127.0.0.1"


class LogServer:
    """Logs by name of the pod. Use it as a context manager."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._ended: set[str] = set()
        self._stopping = False
        self._changed = threading.Condition()
        self.requests: list[dict[str, str]] = []

    def __enter__(self) -> Self:
        logs = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                logs._serve(self)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer((ADDRESS, 0), Handler)
        self._server.daemon_threads = True
        pair = CertificateAuthority().server([ADDRESS], ["localhost"])
        with tempfile.TemporaryDirectory() as folder:
            context = pair.serving_context(Path(folder))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve_node(self, core: client.CoreV1Api, node: str) -> None:
        """Make this the kubelet that the API server asks for the logs of a node's pods."""
        endpoint = {"kubeletEndpoint": {"Port": self._server.server_address[1]}}
        addresses = [{"type": "InternalIP", "address": ADDRESS}]
        core.patch_node_status(node, {"status": {"addresses": addresses, "daemonEndpoints": endpoint}})

    def write(self, pod: str, *lines: str) -> None:
        """The container of a pod writes lines."""
        with self._changed:
            for line in lines:
                now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                self._lines[pod].append(f"{now} {line}\n")
            self._changed.notify_all()

    def end(self, pod: str) -> None:
        """The container of a pod ends."""
        with self._changed:
            self._ended.add(pod)
            self._changed.notify_all()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        url = urllib.parse.urlsplit(request.path)
        pod = url.path.split("/")[3]
        query = dict(urllib.parse.parse_qsl(url.query))
        with self._changed:
            self.requests.append({"pod": pod, **query})
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        sent, last = 0, False
        while not last:
            lines = self._next_lines(pod, sent, follow=query.get("follow") == "true")
            last = not lines
            sent += len(lines)
            since = query.get("sinceTime", "").removesuffix("Z")
            data = "".join(line for line in lines if line >= since).encode()
            if data or last:
                request.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _next_lines(self, pod: str, sent: int, *, follow: bool) -> list[str]:
        """The lines after those that were sent; none at the end of the log."""
        with self._changed:
            while follow and len(self._lines[pod]) == sent and pod not in self._ended and not self._stopping:
                self._changed.wait()
            return self._lines[pod][sent:]
