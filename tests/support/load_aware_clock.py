"""A clock for durations that are promised: it is slow where the machine is too busy for this process."""

import threading
from typing import Self

TICK_SECONDS = 0.05


class LoadAwareClock:
    """Counts the waits of a thread of its own, each with the time that it asked for instead of the time that it took.

    A process that waits for a processor delays these waits as much as its other threads. A part of it that only
    waits for something else does not delay them.
    """

    def __init__(self) -> None:
        self._ticks = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._count, name="load-aware-clock")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def seconds(self) -> float:
        """Seconds since the begin of the block."""
        return self._ticks * TICK_SECONDS

    def _count(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self._ticks += 1
