"""The browsers that have signed in: each has a random cookie in place of its token.

A cookie of localhost reaches every server of that machine, whatever its port, so it must be of no use elsewhere.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable

from cachetools import TTLCache
from starlette.requests import cookie_parser

from wattloop_operator.reporting.interfaces import BearerToken

SESSION_SECONDS = 12 * 3600.0
# Of more, the one that signed in first signs in again. A token has up to 8 KiB.
MAX_SESSIONS = 1_000
COOKIE = "wattloop-session"


class Sessions:
    """The tokens of the browsers that have signed in. Thread-safe; another process knows none of them.

    Args:
        clock: Monotonic seconds.
        is_https: Whether browsers reach the server by HTTPS alone.
    """

    def __init__(self, clock: Callable[[], float], *, is_https: bool) -> None:
        self._lock = threading.Lock()
        # By the digest of the cookie: how long a comparison takes says nothing about one.
        self._tokens: TTLCache[bytes, BearerToken] = TTLCache(MAX_SESSIONS, SESSION_SECONDS, clock)
        # Of this prefix, a browser takes a cookie from its server alone, and not from one of the same domain.
        self._name, self._secure = (f"__Host-{COOKIE}", "; Secure") if is_https else (COOKIE, "")

    def begin(self, token: BearerToken) -> str:
        """Begin a session; returns the value of the header Set-Cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[_digest(value)] = token
        return f"{self._name}={value}{self._attributes}"

    def token_of(self, cookies: str) -> BearerToken | None:
        """The token of the session that a request's cookies name; None if there is none."""
        with self._lock:
            return self._tokens.get(_digest(self._value(cookies)))

    def end(self, cookies: str) -> str:
        """End the session that a request's cookies name; returns the value of the header Set-Cookie."""
        with self._lock:
            self._tokens.pop(_digest(self._value(cookies)), None)
        return f"{self._name}={self._attributes}; Max-Age=0"

    @property
    def _attributes(self) -> str:
        # A link of another page may lead here; what that page loads by itself has no cookie.
        return f"; Path=/; HttpOnly; SameSite=Lax{self._secure}"

    def _value(self, cookies: str) -> str:
        # As browsers write them: another server of localhost may set a cookie that no standard allows.
        return cookie_parser(cookies).get(self._name, "")


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
