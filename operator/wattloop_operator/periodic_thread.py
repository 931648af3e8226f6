"""A thread that does a part of the process's work at an interval."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from wattloop.threads import WatchedThread


class PeriodicThread:
    """Calls a function at an interval; a context manager, which starts and ends its thread.

    Args:
        call: The function. Its exception ends the thread.
        name: Name of the thread.
        interval_seconds: Time before each call.
        stop_seconds: How long the end of a call is waited for; None: until it has ended.
    """

    def __init__(
        self, call: Callable[[], object], name: str, interval_seconds: float, stop_seconds: float | None = None
    ) -> None:
        self._call = call
        self._interval_seconds = interval_seconds
        self._stop_seconds = stop_seconds
        self._stopping = threading.Event()
        self._thread = WatchedThread(self._run, name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.release()
        self._stopping.set()
        self._thread.join(self._stop_seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_seconds):
            self._call()
