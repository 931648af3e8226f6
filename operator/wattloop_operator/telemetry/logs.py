"""Log lines: JSON for machines, text for people; each names the object that it is about in its message."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

from wattloop.printable import PrintableFormatter

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FIELDS = "%(levelname)s %(name)s %(message)s %(threadName)s"
# What these say at a level below is about their own insides.
QUIETER = {
    "kopf": logging.WARNING,
    "kopf.objects": logging.ERROR,
    # It runs in a thread on purpose; signals are the main thread's.
    "kopf._core.reactor.running": logging.ERROR,
    "uvicorn": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "httpx": logging.WARNING,
    "kubernetes": logging.WARNING,
    "urllib3": logging.ERROR,
    "asyncio": logging.WARNING,
    "alembic": logging.WARNING,
}


def set_up_logs(form: str, level: str) -> None:
    """Log to stderr from now on.

    Args:
        form: `json` or `text`.
        level: The least level, such as `info`.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(
            JsonFormatter(FIELDS, rename_fields={"levelname": "level", "name": "logger"}, timestamp="time")
        )
    else:
        handler.setFormatter(PrintableFormatter(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in QUIETER.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    logging.captureWarnings(capture=True)
