"""Log lines on stderr, as text or JSON, with a rate limit for lines about callers.

A hostile caller could fill a node's disk with log lines. Lines about callers, which carry `owner`,
are limited per caller and in total in each second; a summary counts the suppressed ones.
"""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from pythonjsonlogger.json import JsonFormatter

from wattloop.printable import MAX_TEXT_CHARACTERS, printable
from wattloop.printable_formatter import PrintableFormatter

WINDOW_SECONDS = 1.0
MAX_LINES_PER_CALLER = 5
MAX_LINES = 20

# The standard fields of a record; all others come from `extra` and belong to the line.
_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_TRACES = frozenset({"exc_info", "stack_info"})


class Suppressed(NamedTuple):
    """The lines suppressed in one window, and the caller with the most, among those with a logged line; else empty."""

    lines: int
    top_caller: str


class LogRateLimit:
    """Decides which lines about callers are logged in a window; `suppressed` counts all others since the start.

    Example:
        >>> limit = LogRateLimit(lambda: 0.0, per_caller=1)
        >>> [limit.admits(caller) for caller in ("pod:a", "pod:a", "pod:b")]
        [True, False, True]
    """

    def __init__(
        self, clock: Callable[[], float], per_caller: int = MAX_LINES_PER_CALLER, total: int = MAX_LINES
    ) -> None:
        self._clock = clock
        self._per_caller = per_caller
        self._total = total
        self._window_start_seconds = clock()
        self._logged: Counter[str] = Counter()
        # Only of callers that had a line logged, so that its size stays within that of what was logged.
        self._suppressed_by_caller: Counter[str] = Counter()
        self._suppressed = 0
        self.suppressed = 0

    def admits(self, caller: str) -> bool:
        """Whether a line about this caller is logged now; call `summary` first."""
        if self._logged[caller] < self._per_caller and self._logged.total() < self._total:
            self._logged[caller] += 1
            return True
        if not self._logged[caller]:
            del self._logged[caller]
        else:
            self._suppressed_by_caller[caller] += 1
        self._suppressed += 1
        self.suppressed += 1
        return False

    def summary(self) -> Suppressed | None:
        """What the last window suppressed; None: nothing, or the window has not ended."""
        now = self._clock()
        if now < self._window_start_seconds + WINDOW_SECONDS:
            return None
        summary = None
        if self._suppressed:
            top = self._suppressed_by_caller.most_common(1)
            summary = Suppressed(self._suppressed, top[0][0] if top else "")
        self._window_start_seconds = now
        self._logged.clear()
        self._suppressed_by_caller.clear()
        self._suppressed = 0
        return summary


class RateLimitedHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, and limits those about callers, which have an ``owner`` in `extra`.

    The summary of a window precedes the next line that is logged.
    """

    def __init__(self, stream: TextIO, limit: LogRateLimit) -> None:
        super().__init__(stream)
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless its caller has used up its lines; called with the handler's lock held."""
        summary = self._limit.summary()
        if summary is not None:
            fields = {"lines": summary.lines, "top_caller": summary.top_caller or "none"}
            line = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", **fields}
            super().emit(logging.makeLogRecord({**line, "msg": "log lines about callers suppressed"}))
        owner = getattr(record, "owner", None)
        if owner is None or self._limit.admits(str(owner)):
            super().emit(record)


# One per process, since its logs are one stream.
PROCESS_LOG_LIMIT = LogRateLimit(time.monotonic)


class TextFormatter(PrintableFormatter):
    """``12:00:00 info message key=value …``."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The record's line with its `extra` fields, each bounded and printable."""
        extra = [(key, value) for key, value in record.__dict__.items() if key not in _STANDARD_FIELDS]
        return " ".join((super().formatMessage(record), *(f"{key}={printable(str(value))}" for key, value in extra)))


class BoundedJsonFormatter(JsonFormatter):
    """Bounds the length of text fields; JSON escapes unprintable characters."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """The record's fields."""
        bounded = {
            key: value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) and key not in _TRACES else value
            for key, value in log_data.items()
        }
        return super().process_log_record(bounded)


def set_up_logs(log_format: str, level: str) -> None:
    """Send the process's logs from this level on to stderr, as ``text`` or ``json``."""
    handler = RateLimitedHandler(sys.stderr, PROCESS_LOG_LIMIT)
    if log_format == "json":
        names = {"levelname": "level", "asctime": "time", "name": "logger"}
        handler.setFormatter(
            BoundedJsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names)
        )
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
