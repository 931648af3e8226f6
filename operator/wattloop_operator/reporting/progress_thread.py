"""Writes progress that waits, from a thread of its own, for as long as reports are served."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from wattloop_operator.reporting.progress_writes import ProgressWrites

LOOK_EVERY_SECONDS = 0.25

logger = logging.getLogger(__name__)


class ProgressThread:
    """A thread that writes what is due. Used as a context manager; at the end whatever waits is written.

    Args:
        writes: What waits.
    """

    def __init__(self, writes: ProgressWrites) -> None:
        self._writes = writes
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="progress-writes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._writes.write_due(everything=True)

    def _work(self) -> None:
        while not self._ending.wait(LOOK_EVERY_SECONDS):
            try:
                self._writes.write_due()
            except Exception:  # this thread must outlive whatever one recurrence is like
                logger.exception("progress that waits could not be written; trying again")
