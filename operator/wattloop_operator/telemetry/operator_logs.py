"""Logging of the operator, as JSON or text; each message names its object."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

from wattloop.printable_formatter import PrintableFormatter

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
FIELDS = "%(levelname)s %(name)s %(message)s %(threadName)s"
# Minimum levels: below them these libraries log their internals.
MIN_LEVELS = {
    "kopf": logging.WARNING,
    "kopf.objects": logging.ERROR,
    # It warns that it runs outside the main thread, which is intended: the main thread handles signals.
    "kopf._core.reactor.running": logging.ERROR,
    "httpx": logging.WARNING,
    "kubernetes": logging.WARNING,
    "urllib3": logging.ERROR,
    "asyncio": logging.WARNING,
    "alembic": logging.WARNING,
}
# kopf logs an error for each attempt of a request that it repeats, while the API server is away or has too many
# requests. The informers say it once.
REQUESTING = ("kopf._cogs.clients.watching", "kopf._core.reactor.observation")


def set_up_logs(form: str, level: str) -> None:
    """Log to stderr.

    Args:
        form: `json` or `text`.
        level: The minimum level, such as `info`.
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
    for name, minimum in MIN_LEVELS.items():
        logging.getLogger(name).setLevel(max(minimum, root.level))
    for name in REQUESTING:
        logging.getLogger(name).addFilter(lambda record: not record.getMessage().startswith("Request attempt "))
    logging.captureWarnings(capture=True)
