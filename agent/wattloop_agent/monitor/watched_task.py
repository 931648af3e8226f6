"""A task of the event loop that runs as long as the monitor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from wattloop import threads

logger = logging.getLogger(__name__)


class WatchedTask:
    """Runs a coroutine until `end`; an end before that is a problem of the process, as of a `WatchedThread`.

    It is an asynchronous context manager too, which ends it.

    Args:
        coroutine: What it runs.
        name: Its name, in the log and in the health check.
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
