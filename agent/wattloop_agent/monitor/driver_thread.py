"""The only thread that calls the driver: requests in order, and periodic samples between them."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from wattloop.threads import WatchedThread

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_Request = tuple["Future[Any]", Callable[[], Any]]


class DriverThread:
    """Runs functions one at a time; a driver that hangs blocks this thread and nothing else.

    Args:
        sample: Called in the thread at each interval.
    """

    def __init__(self, sample: Callable[[], None]) -> None:
        self._sample = sample
        # None: the interval has changed, or the thread is to end.
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._interval_seconds: float | None = None
        self._due_seconds = 0.0
        self._closed = False
        self._thread: WatchedThread | None = None

    def submit(self, read: Callable[[], Result]) -> Future[Result]:
        """Run a function in the thread; a future that is cancelled before that is not run."""
        future: Future[Result] = Future()
        self._start()
        self._requests.put((future, read))
        return future

    def set_interval(self, interval_seconds: float | None) -> None:
        """Sample at this interval from now on; None: not at all."""
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
        """End the thread. A call that hangs is abandoned, and does not delay the exit."""
        if self._thread is not None:
            self._thread.release()
        self._closed = True
        self._requests.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = WatchedThread(self._run, "nvml")
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            try:
                request = self._requests.get(timeout=self._left_seconds())
            except queue.Empty:
                request = None
            if request is not None:
                _run_request(*request)
            if self._interval_seconds is not None and self._left_seconds() == 0.0 and not self._closed:
                self._take_sample(self._interval_seconds)

    def _left_seconds(self) -> float | None:
        if self._interval_seconds is None:
            return None
        return max(self._due_seconds - time.monotonic(), 0.0)

    def _take_sample(self, interval_seconds: float) -> None:
        try:
            self._sample()
        except Exception:
            logger.exception("unexpected failure of a sample of the GPUs; continuing with the next one")
        # Samples that a slow driver delayed are not made up for, and time is left for requests.
        self._due_seconds = max(self._due_seconds + interval_seconds, time.monotonic() + interval_seconds / 2)


def _run_request(future: Future[Any], read: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - it belongs to the future's caller
        future.set_exception(error)
