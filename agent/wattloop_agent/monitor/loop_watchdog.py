"""Ends a process whose event loop hangs, so that the next one answers callers again."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import time
from collections.abc import Callable


class LoopWatchdog:
    """Counts how long the event loop has not moved.

    Args:
        limit_seconds: After so long it hangs: no load explains it.
        step_seconds: How often both sides come by.
        clock: Monotonic seconds.
    """

    def __init__(self, limit_seconds: float, step_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._step_seconds = step_seconds
        self._clock = clock
        self._checked_seconds = clock()
        self._still_seconds = 0.0

    async def run(self) -> None:
        """Move, on the event loop, until cancelled."""
        while True:
            self.moved()
            await asyncio.sleep(self._step_seconds)

    def moved(self) -> None:
        """The event loop has moved."""
        self._still_seconds = 0.0

    def hangs(self) -> bool:
        """Whether it has not moved for too long; called again and again, from a thread of its own."""
        now = self._clock()
        # A machine or a process that was stopped was stopped as a whole: one call counts for two steps at most.
        self._still_seconds += min(now - self._checked_seconds, 2 * self._step_seconds)
        self._checked_seconds = now
        return self._still_seconds > self._limit_seconds

    def end_if_it_hangs(self) -> None:
        """End the process, with a trace, if the event loop hangs."""
        if self.hangs():
            # By no logger: the event loop may hang while it has a lock of one.
            faulthandler.dump_traceback(all_threads=True)
            os._exit(1)
