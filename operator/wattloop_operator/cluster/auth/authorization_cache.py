"""Who was admitted or refused a moment ago, so that a caller that comes often is not asked about each time."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.cluster.timed_cache import TimedCache
from wattloop_operator.reporting.interfaces import BearerToken

# A caller that is gone reports no more; until then its token is good.
TRUSTED_SECONDS = 60.0
MAX_ADMITTED = 10_000
# Shorter: what a pod runs is written down soon after it has started.
REFUSED_SECONDS = 10.0


class AuthorizationCache:
    """Tokens that were found good, and for what, and those that were refused. Safe to use from several threads.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._admitted: TimedCache[tuple[bytes, str], bool] = TimedCache(
            clock, seconds=TRUSTED_SECONDS, most=MAX_ADMITTED
        )
        self._refused: TimedCache[tuple[bytes, str], str] = TimedCache(
            clock, seconds=REFUSED_SECONDS, most=MAX_ADMITTED
        )

    def hold(self, token: BearerToken, subject: str) -> bool:
        """Whether this token was admitted to this subject a moment ago."""
        return self._admitted.get(_key(token, subject)) is not None

    def keep(self, token: BearerToken, subject: str) -> None:
        """Remember that this token is admitted to this subject."""
        self._admitted.keep(_key(token, subject), True)

    def refusal(self, token: BearerToken, subject: str) -> str | None:
        """Why this token was refused this subject a moment ago; None where it was not."""
        return self._refused.get(_key(token, subject))

    def refuse(self, token: BearerToken, subject: str, reason: str) -> None:
        """Remember why this token is refused this subject."""
        self._refused.keep(_key(token, subject), reason)


def _key(token: BearerToken, subject: str) -> tuple[bytes, str]:
    # Tokens themselves are not kept, for they would open the gate to whoever reads this process's memory.
    return token.digest, subject
