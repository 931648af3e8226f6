"""HTTP servers of which a test writes only what they answer."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[[BaseHTTPRequestHandler], None]


def respond(request: BaseHTTPRequestHandler, code: int, body: bytes | object, **headers: str) -> None:
    """Answer a request with these bytes, or with this as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request.send_response(code)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def json_body(request: BaseHTTPRequestHandler) -> object:
    """The body of a request."""
    return json.loads(request.rfile.read(int(request.headers["Content-Length"])))


@contextlib.contextmanager
def http_server(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server that answers the requests of each method in this way, over HTTPS if it has a TLS context.

    Yields its URL.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            behaviour(self)

        do_POST = do_PUT = do_GET  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Report an error, but not a caller that rejects the certificate."""
            if tls is None:
                super().handle_error(*arguments)  # type: ignore[arg-type]

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
