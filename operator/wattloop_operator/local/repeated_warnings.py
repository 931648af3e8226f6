"""Warnings that would come with each training: a run shows each of them once.

Each training of a run opens the same GPUs, so what is wrong with them is logged with every one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


class _FirstOfEach(logging.Filter):
    """Passes a message that was not seen before."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is new."""
        text = record.getMessage()
        is_new = text not in self._seen
        self._seen.add(text)
        return is_new


@contextlib.contextmanager
def each_warning_once(logger: logging.Logger) -> Iterator[None]:
    """Drop what the logger has already said within the block.

    Args:
        logger: The logger of one module, whose messages are few.
    """
    first_of_each = _FirstOfEach()
    logger.addFilter(first_of_each)
    try:
        yield
    finally:
        logger.removeFilter(first_of_each)
