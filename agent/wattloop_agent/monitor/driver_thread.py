"""The one thread that asks the driver: requests in their order, and between them a look at all GPUs at a pace."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_Request = tuple["Future[Any]", Callable[[], Any]]


class DriverThread:
    """Calls what it is given, one at a time; a driver that hangs holds up this thread and nothing else.

    Args:
        look: Called at the pace, in the thread.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        # None: the pace has changed, or the thread is to end.
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._interval_seconds: float | None = None
        self._due_seconds = 0.0
        self._ends = False
        self._thread: threading.Thread | None = None

    def ask(self, read: Callable[[], Result]) -> Future[Result]:
        """Call this in the thread; cancelled before its turn, it is not called."""
        future: Future[Result] = Future()
        self._start()
        self._requests.put((future, read))
        return future

    def pace(self, interval_seconds: float | None) -> None:
        """Look so often from now on; None: not at all."""
        if interval_seconds == self._interval_seconds:
            return
        now = time.monotonic()
        self._due_seconds = (
            now if self._interval_seconds is None else min(self._due_seconds, now + (interval_seconds or 0))
        )
        self._interval_seconds = interval_seconds
        self._start()
        self._requests.put(None)

    def close(self) -> None:
        """End the thread; a call that hangs is left behind, and holds up no exit."""
        self._ends = True
        self._requests.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._ends:
            try:
                request = self._requests.get(timeout=self._left_seconds())
            except queue.Empty:
                request = None
            if request is not None:
                _carry_out(*request)
            if self._interval_seconds is not None and self._left_seconds() == 0.0 and not self._ends:
                self._looked(self._interval_seconds)

    def _left_seconds(self) -> float | None:
        if self._interval_seconds is None:
            return None
        return max(self._due_seconds - time.monotonic(), 0.0)

    def _looked(self, interval_seconds: float) -> None:
        try:
            self._look()
        except Exception:
            logger.exception("a look at the GPUs failed in a way that nobody foresaw; the next one comes")
        # At the pace, without catching up on what a slow driver made us miss, and with time left for requests.
        self._due_seconds = max(self._due_seconds + interval_seconds, time.monotonic() + interval_seconds / 2)


def _carry_out(future: Future[Any], read: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - it is the asker's
        future.set_exception(error)
