"""Log lines on stderr: text for a person, one JSON object a line for a machine."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

# What every record has by itself; anything else came in with `extra` and belongs to the line.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """``12:00:00 info message key=value …``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with what it was given as `extra`."""
        words = " ".join(f"{key}={value}" for key, value in record.__dict__.items() if key not in _OWN)
        line = super().format(record)
        return f"{line} {words}" if words else line


def set_up_logs(log_format: str, level: str) -> None:
    """Send the process's logs to stderr.

    Args:
        log_format: ``text`` or ``json``.
        level: The least level that is logged.
    """
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        names = {"levelname": "level", "asctime": "time", "name": "logger"}
        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names))
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
