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
MAX_SESSIONS_OF_USER = 20
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


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
