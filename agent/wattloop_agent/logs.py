"""Log lines on stderr: text for a person, one JSON object a line for a machine."""

from __future__ import annotations

import logging
import sys
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from wattloop.printable import MAX_TEXT_CHARACTERS, PrintableFormatter, printable
from wattloop_agent.log_bound import PROCESS_BOUND, BoundedHandler

# What every record has by itself; anything else came in with `extra` and belongs to the line.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_TRACES = frozenset({"exc_info", "stack_info"})


class TextFormatter(PrintableFormatter):
    """``12:00:00 info message key=value …``."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The record's line with what it was given as `extra`, each bounded and printable."""
        given = [(key, value) for key, value in record.__dict__.items() if key not in _OWN]
        return " ".join((super().formatMessage(record), *(f"{key}={printable(str(value))}" for key, value in given)))


class BoundedJsonFormatter(JsonFormatter):
    """JSON escapes what is not printable; here texts have a bound as well."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """The record's fields."""
        bounded = {
            key: value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) and key not in _TRACES else value
            for key, value in log_data.items()
        }
        return super().process_log_record(bounded)


def set_up_logs(log_format: str, level: str) -> None:
    """Send the process's logs to stderr.

    Args:
        log_format: ``text`` or ``json``.
        level: The least level that is logged.
    """
    handler = BoundedHandler(sys.stderr, PROCESS_BOUND)
    if log_format == "json":
        names = {"levelname": "level", "asctime": "time", "name": "logger"}
        handler.setFormatter(
            BoundedJsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names)
        )
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
