"""Requests that uvicorn refuses by itself: counted, and said in a line a minute, however many a client sends."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

# uvicorn's own words, and ours for the metric.
MALFORMED, CROWDED = "malformed", "crowded"
REASONS = {"Invalid HTTP request received.": MALFORMED, "Exceeded concurrency limit.": CROWDED}
# The request is answered without the upgrade that it asks for; nothing here offers any.
IGNORED = ("Unsupported upgrade request.", "No supported WebSocket library detected.")
LINE_EVERY_SECONDS = 60.0


class RefusedRequests(logging.Filter):
    """What one server's connections log through: of refused requests one line a minute and reason, all else as it is.

    Args:
        server: What serves, for the line.
        counted: Told the reason of each request that was refused.
        clock: Of the minute.

    Attributes:
        logger: For the server's connections.
    """

    def __init__(
        self, server: str, counted: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._server = server
        self._counted = counted
        self._clock = clock
        self._unsaid: Counter[str] = Counter()
        self._quiet_until: dict[str, float] = {}
        parent = logging.getLogger("uvicorn.error")
        # Not one of the process's loggers: each server has its own, which goes with it.
        self.logger = logging.Logger(parent.name)
        self.logger.parent = parent
        self.logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        text = record.getMessage()
        if text.startswith(IGNORED):
            return False
        reason = REASONS.get(text)
        if reason is None:
            return True
        self._counted(reason)
        self._unsaid[reason] += 1
        now = self._clock()
        if now < self._quiet_until.get(reason, -math.inf):
            return False
        self._quiet_until[reason] = now + LINE_EVERY_SECONDS
        record.msg = "%s: %s (requests since this was said last: %d)"
        record.args = (self._server, text, self._unsaid.pop(reason))
        return True
