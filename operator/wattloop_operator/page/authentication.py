"""Lets a request through to the page of its viewer: by a bearer token, or the cookie of a signed-in browser.

A browser that has signed in has a random cookie in place of its token. A cookie of localhost reaches every server of
that machine, whatever its port, so it must be of no use elsewhere.
"""

import hashlib
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qs

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_operator.cluster.auth.viewers import UI_AUDIENCE, Viewer, ViewerTokens
from wattloop_operator.page.change_stream import EventStream, ViewerPage, told, with_page
from wattloop_operator.page.rendering import rendered_error, rendered_sign_in
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError, UnknownCallerError

logger = logging.getLogger(__name__)

SESSION_SECONDS = 12 * 3600.0
# Of more, the one that signed in first signs in again. A token has up to 8 KiB.
MAX_SESSIONS = 1_000
MAX_SESSIONS_OF_USER = 20
COOKIE = "wattloop-session"
SIGN_IN, SIGN_OUT, EVENTS = "/sign-in", "/sign-out", "/events"
# Nothing of a job is in these.
PUBLIC = "/static/"
FORM = "application/x-www-form-urlencoded"
# A token has up to 8,192 characters, each of which may be escaped by three.
MAX_FORM_BYTES = 32 * 1024
NO_TOKEN = (
    "send a token of the cluster as Authorization: Bearer …; "
    f"kubectl create token SERVICEACCOUNT --namespace NAMESPACE --audience {UI_AUDIENCE} makes one"
)
SIGNED_OUT = "you are not signed in, or your token has expired; reload the page"
REFUSALS = (UnknownCallerError, TooManyRequestsError, OperationError)
NOT_A_FORM = f"send one field, token, as {FORM} of at most {MAX_FORM_BYTES} bytes"


class Sessions:
    """The tokens of the browsers that have signed in. Thread-safe; another process knows none of them.

    Args:
        clock: Monotonic seconds.
        is_https: Whether browsers reach the server by HTTPS alone.
    """

    def __init__(self, clock: Callable[[], float], *, is_https: bool) -> None:
        self._lock = threading.Lock()
        # By the digest of the cookie: how long a comparison takes says nothing about one.
        # The oldest first, with the user's name.
        self._sessions: TTLCache[bytes, tuple[str, BearerToken]] = TTLCache(MAX_SESSIONS, SESSION_SECONDS, clock)
        # Of this prefix, a browser takes a cookie from its server alone, and not from one of the same domain.
        self._name, self._secure = (f"__Host-{COOKIE}", "; Secure") if is_https else (COOKIE, "")

    def begin(self, user: str, token: BearerToken) -> str:
        """Begin a session of the user of this name, and end his oldest of too many; returns the header Set-Cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            own = [digest for digest, (name, _) in self._sessions.items() if name == user]
            if len(own) >= MAX_SESSIONS_OF_USER:
                self._sessions.pop(own[0], None)
            self._sessions[_digest(value)] = user, token
        return f"{self._name}={value}{self._attributes}"

    def token_of(self, cookies: str) -> BearerToken | None:
        """The token of the session that a request's cookies name; None if there is none."""
        with self._lock:
            _, token = self._sessions.get(_digest(self._value(cookies)), ("", None))
            return token

    def end(self, cookies: str) -> str:
        """End the session that a request's cookies name; returns the value of the header Set-Cookie."""
        with self._lock:
            self._sessions.pop(_digest(self._value(cookies)), None)
        return f"{self._name}={self._attributes}; Max-Age=0"

    @property
    def _attributes(self) -> str:
        # A link of another page may lead here; what that page loads by itself has no cookie.
        return f"; Path=/; HttpOnly; SameSite=Lax{self._secure}"

    def _value(self, cookies: str) -> str:
        # As browsers write them: another server of localhost may set a cookie that no standard allows.
        return cookie_parser(cookies).get(self._name, "")


class Authentication:
    """ASGI middleware around the routes of the page."""

    def __init__(
        self, app: ASGIApp, tokens: ViewerTokens, sessions: Sessions, page_of_viewer: Callable[[Viewer], ViewerPage]
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions = sessions
        self._page_of_viewer = page_of_viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"].startswith(PUBLIC):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if scope["path"] in {SIGN_IN, SIGN_OUT}:
            await (await self._session_response(request))(scope, receive, send)
            return
        try:
            viewer = await run_in_threadpool(self._viewer, request)
        except REFUSALS as error:
            await _refusal(request, error)(scope, receive, send)
            return
        page = replace(self._page_of_viewer(viewer), ending=lambda: self._ending(request, viewer))
        await self._app(with_page(scope, page), receive, send)

    def _ending(self, request: Request, viewer: Viewer) -> str:
        """Why the viewer of an earlier request is not its viewer any more; empty if he is."""
        try:
            return "" if self._viewer(request) == viewer else SIGNED_OUT
        except UnknownCallerError:
            return SIGNED_OUT
        except (TooManyRequestsError, OperationError) as error:
            return printable(str(error))

    def _token(self, request: Request) -> BearerToken:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        found = BearerToken(text.strip()) if scheme.lower() == "bearer" else None
        found = found or self._sessions.token_of(request.headers.get("cookie", ""))
        if found is None:
            raise UnknownCallerError(NO_TOKEN)
        return found

    def _viewer(self, request: Request, token: BearerToken | None = None) -> Viewer:
        address = request.client.host if request.client else ""
        return self._tokens.viewer_of(self._token(request) if token is None else token, address)

    async def _session_response(self, request: Request) -> Response:
        if request.url.path == SIGN_IN and request.method in {"GET", "HEAD"}:
            return HTMLResponse(rendered_sign_in("", UI_AUDIENCE))
        if request.method != "POST":
            return Response(status_code=405, headers={"Allow": "POST"})
        if request.url.path == SIGN_OUT:
            return _redirection(SIGN_IN, self._sessions.end(request.headers.get("cookie", "")))
        token = await _token_of_form(request)
        if token is None:
            return HTMLResponse(rendered_sign_in(NOT_A_FORM, UI_AUDIENCE), 400)
        try:
            viewer = await run_in_threadpool(self._viewer, request, token)
        except REFUSALS as error:
            return HTMLResponse(rendered_sign_in(printable(str(error)), UI_AUDIENCE), _status(error))
        logger.info("%s signed in", printable(viewer.name))
        return _redirection("/", self._sessions.begin(viewer.name, token))


async def _token_of_form(request: Request) -> BearerToken | None:
    """The token of a form; None if it is no form with one."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return None
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                return None
        (token,) = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=1)["token"]
    except (ClientDisconnect, ValueError, KeyError):
        return None
    return BearerToken(token.strip())


def _refusal(request: Request, error: Exception) -> Response:
    status, text = _status(error), printable(str(error))
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(error.retry_after_seconds)
    path = request.url.path
    if path.startswith("/api/"):
        return JSONResponse({"detail": text}, status, headers)
    if path == EVENTS and status == 401:
        return EventStream(told(SIGNED_OUT))
    if status == 401:
        problem = "" if text == NO_TOKEN else text
        return HTMLResponse(rendered_sign_in(problem, UI_AUDIENCE), status, headers)
    return HTMLResponse(rendered_error("You cannot be identified now", text, "Reload the page."), status, headers)


def _status(error: Exception) -> int:
    if isinstance(error, UnknownCallerError):
        return 401
    return 429 if isinstance(error, TooManyRequestsError) else 503


def _redirection(address: str, cookie: str) -> Response:
    return RedirectResponse(address, 303, {"Set-Cookie": cookie})


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
