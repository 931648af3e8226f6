"""Bounds what callers can have logged: so many lines a caller and second, and so many in all; the rest is counted."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

WINDOW_SECONDS = 1.0
MAX_LINES_OF_A_CALLER = 5
MAX_LINES = 20


@dataclass(frozen=True)
class Suppressed:
    """What was not logged in one window.

    Attributes:
        lines: How many lines.
        most_by: The caller with the most of them among those that had any logged; empty: none of those had.
    """

    lines: int
    most_by: str


class LogBound:
    """Says which lines about callers are logged.

    Args:
        clock: Monotonic seconds.
        of_a_caller: How many lines about one caller are logged in a window.
        in_all: How many lines about callers are logged in a window.

    Attributes:
        suppressed: How many lines were not logged since the start.

    Example:
        >>> bound = LogBound(lambda: 0.0, of_a_caller=1)
        >>> [bound.admits(caller) for caller in ("pod:a", "pod:a", "pod:b")]
        [True, False, True]
    """

    def __init__(
        self, clock: Callable[[], float], of_a_caller: int = MAX_LINES_OF_A_CALLER, in_all: int = MAX_LINES
    ) -> None:
        self._clock = clock
        self._of_a_caller = of_a_caller
        self._in_all = in_all
        self._began_seconds = clock()
        self._logged: Counter[str] = Counter()
        # Of callers that had a line logged alone, so that this stays as small as what was logged.
        self._suppressed_of: Counter[str] = Counter()
        self._suppressed = 0
        self.suppressed = 0

    def admits(self, caller: str) -> bool:
        """Whether a line about this caller is logged now; call `summary` before."""
        if self._logged[caller] < self._of_a_caller and self._logged.total() < self._in_all:
            self._logged[caller] += 1
            return True
        if not self._logged[caller]:
            del self._logged[caller]
        else:
            self._suppressed_of[caller] += 1
        self._suppressed += 1
        self.suppressed += 1
        return False

    def summary(self) -> Suppressed | None:
        """What the window that has ended suppressed; None: nothing, or it has not ended."""
        now = self._clock()
        if now < self._began_seconds + WINDOW_SECONDS:
            return None
        told = None
        if self._suppressed:
            most = self._suppressed_of.most_common(1)
            told = Suppressed(self._suppressed, most[0][0] if most else "")
        self._began_seconds = now
        self._logged.clear()
        self._suppressed_of.clear()
        self._suppressed = 0
        return told


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream; those about a caller (`extra` has its ``owner``) within a `LogBound`.

    The summary of a window precedes the next line that is logged.

    Args:
        stream: Where to.
        bound: What is admitted.
    """

    def __init__(self, stream: TextIO, bound: LogBound) -> None:
        super().__init__(stream)
        self._bound = bound

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless its caller has had its lines; called with the handler's lock held."""
        told = self._bound.summary()
        if told is not None:
            super().emit(_record_of(told))
        owner = getattr(record, "owner", None)
        if owner is None or self._bound.admits(str(owner)):
            super().emit(record)


# The process's own: its logs are one stream.
PROCESS_BOUND = LogBound(time.monotonic)


def _record_of(told: Suppressed) -> logging.LogRecord:
    words = {"lines": told.lines, "most_by": told.most_by or "none"}
    record = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", **words}
    return logging.makeLogRecord({**record, "msg": "log lines about callers suppressed"})
