"""Checks of each request, and headers of each response, that keep other web pages out.

A page of another site may send requests to this machine. By DNS rebinding it may even read the answers: its own name
then leads here, so a request must name the address that the server listens on.
"""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Matplotlib's SVG has styles of its own and nothing else.
SVG_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer", by which a browser would send a form of this page with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# By these, browsers reach a server of this machine or a forwarded port.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
WRONG_HOST = "this server answers to its own address alone; open it as {scheme}://{host}"
OTHER_ORIGIN = "a page of another origin cannot read this server"


class RequestGuard:
    """ASGI middleware around the application.

    Args:
        app: The application.
        hosts: Names of the server, without a port: through a forwarded port a browser names another one.
        scheme: http or https, as browsers reach it.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], scheme: str = "http") -> None:
        self._app = app
        self._scheme = scheme
        self._hosts = tuple(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        app = self._refusal(Headers(scope=scope)) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        """Why a request is not answered; None if it is."""
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            return PlainTextResponse(WRONG_HOST.format(scheme=self._scheme, host=self._hosts[0]), 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_other = origin not in (None, f"{self._scheme}://{host}") or site not in {"none", "same-origin"}
        # A link of another site may lead here; what it loads by itself may not.
        if is_other and (headers.get("sec-fetch-mode") != "navigate" or origin is not None):
            return PlainTextResponse(OTHER_ORIGIN, 403)
        return None


def host_name(host: str) -> str:
    """The name in a Host header.

    Example:
        >>> host_name("localhost:8790"), host_name("[::1]:8790"), host_name("127.0.0.1")
        ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
