"""What the operator's tests share, whatever part they are of."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def untouched_logging() -> Iterator[None]:
    """Logs as they were, after what sets them up for a process of its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    logging.captureWarnings(capture=False)
