"""Requests for a clock that are answered only if they are refused.

A plan changes the clocks of a rank at every instruction. The rank must not wait for answers, and an old clock is of no
use once a newer one is requested. So of such requests that wait on a connection only the newest is executed, and each
owner has a rate: a caller that sends faster than its clocks can follow costs no more than one that does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from wattloop_agent.json_lines import boolean, decoded_request
from wattloop_agent.monitor.caller_connection import CallerConnection
from wattloop_agent.refusals import RequestError

VERB = "hold_clocks"
CHANGES_PER_SECOND = 2000.0
# The instructions of many ranks of a pod may end at the same moment.
MAX_BURST = 200
# Requests that are replaced before the event loop serves other connections.
MAX_REPLACED = 32
# A longer request waits for its turn, since decoding it takes long.
MAX_LINE_BYTES = 4096
MAX_OWNERS = 1024


def is_unanswered(request: Mapping[str, object]) -> bool:
    """Whether a request is answered only if it is refused; `Reason.BAD_REQUEST`: its ``unanswered`` is no boolean."""
    return request["verb"] == VERB and boolean(request, "unanswered")


def replaces(newer: Mapping[str, object], older: Mapping[str, object]) -> bool:
    """Whether an unanswered request makes an older one useless.

    Example:
        >>> older = {"verb": "hold_clocks", "unanswered": True, "gpus": ["GPU-1"], "megahertz": 900}
        >>> replaces({**older, "megahertz": 1200}, older), replaces({**older, "gpus": ["GPU-2"]}, older)
        (True, False)
    """
    # A field of another type than it should have is refused in its turn.
    return (
        newer["verb"] == VERB
        and newer.get("unanswered") is True
        and all(newer.get(name) == older.get(name) for name in ("gpus", "domain", "for_seconds"))
    )


def newest_request(connection: CallerConnection, request: dict[str, object]) -> dict[str, object]:
    """The last of the requests on a connection that each replace the one before, beginning with this one.

    Those before are taken from the connection. It does not wait for data.
    """
    for _ in range(MAX_REPLACED):
        line = connection.available_line()
        if line is None or len(line) > MAX_LINE_BYTES:
            break
        try:
            newer = decoded_request(line)
        except RequestError:
            break
        if not replaces(newer, request):
            break
        connection.skip_line()
        request = newer
    return request


class ChangeRates:
    """The rate at which each owner may change clocks by unanswered requests: a token bucket each.

    Example:
        >>> seconds = [0.0]
        >>> rates = ChangeRates(per_second=10.0, burst=2, clock=lambda: seconds[0])
        >>> [rates.delay_seconds("pod:a") for _ in range(4)]
        [0.0, 0.0, 0.1, 0.2]
        >>> seconds[0] = 60.0
        >>> rates.delay_seconds("pod:a"), rates.delay_seconds("pod:b")
        (0.0, 0.0)
    """

    def __init__(
        self,
        per_second: float = CHANGES_PER_SECOND,
        burst: int = MAX_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst_seconds = burst / per_second
        self._clock = clock
        # When the bucket of each owner will be full again; without an entry it is full.
        self._full_seconds: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_seconds)

    def delay_seconds(self, owner: str) -> float:
        """Take a token; returns how long the caller has to wait for it."""
        now = self._clock()
        if len(self._full_seconds) >= MAX_OWNERS:
            self._full_seconds = {each: full for each, full in self._full_seconds.items() if full > now}
        full = max(self._full_seconds.get(owner, now), now) + 1 / self._per_second
        self._full_seconds[owner] = full
        return max(round(full - now - self._burst_seconds, 9), 0.0)
