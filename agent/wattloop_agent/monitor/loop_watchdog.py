"""Ends a process whose event loop hangs, so that whatever supervises it starts another."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import time
from collections.abc import Callable


class LoopWatchdog:
    """Measures how long the event loop has made no progress.

    Args:
        limit_seconds: After so long without progress the loop counts as hung; no load explains it.
        step_seconds: The interval at which the loop and the checking thread call this.
        clock: Monotonic seconds.
    """

    def __init__(self, limit_seconds: float, step_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._step_seconds = step_seconds
        self._clock = clock
        self._checked_seconds = clock()
        self._stalled_seconds = 0.0

    async def run(self) -> None:
        """Report progress, on the event loop, until cancelled."""
        while True:
            self.report_progress()
            await asyncio.sleep(self._step_seconds)

    def report_progress(self) -> None:
        """Record that the event loop runs."""
        self._stalled_seconds = 0.0

    def is_hung(self) -> bool:
        """Whether the loop has made no progress for too long.

        Called repeatedly, from another thread.
        """
        now = self._clock()
        # A suspended machine or process stalls both threads, so one call counts for two steps at
        # most.
        self._stalled_seconds += min(now - self._checked_seconds, 2 * self._step_seconds)
        self._checked_seconds = now
        return self._stalled_seconds > self._limit_seconds

    def end_if_hung(self) -> None:
        """End the process, with a stack trace, if the event loop hangs."""
        if self.is_hung():
            # Not logged: the event loop may hang while it holds a logger's lock.
            faulthandler.dump_traceback(all_threads=True)
            os._exit(1)
