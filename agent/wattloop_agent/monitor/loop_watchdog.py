"""Ends a process whose event loop hangs, or one of whose tasks has ended, so that its supervisor starts another."""

import asyncio
import faulthandler
import logging
import os
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from wattloop import threads

logger = logging.getLogger(__name__)


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
        """Whether the loop has made no progress for too long; called repeatedly, from another thread."""
        now = self._clock()
        # A suspended machine or process stalls both threads, so one call counts for two steps at most.
        self._stalled_seconds += min(now - self._checked_seconds, 2 * self._step_seconds)
        self._checked_seconds = now
        return self._stalled_seconds > self._limit_seconds

    def end_if_hung(self) -> None:
        """End the process, with a stack trace, if the event loop hangs."""
        if self.is_hung():
            # Not logged: the event loop may hang while it holds a logger's lock.
            faulthandler.dump_traceback(all_threads=True)
            os._exit(1)


class WatchedTask:
    """Runs a coroutine until `end`; an end before that is a problem of the process, as of a `WatchedThread`.

    It is an asynchronous context manager too, which ends it. The log and the health check have its name.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._name = name
        self._problem = ""
        self._task = asyncio.create_task(coroutine, name=name)
        self._release = threads.watch(name, lambda: self._problem)
        self._task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Cancel the task, and wait until it has ended."""
        self._release()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self._problem = f"the task {self._name} has ended" + ("" if error is None else f": {type(error).__name__}")
        if error is not None:
            logger.error("unexpected failure of the task %s", self._name, exc_info=error)
