"""Looking at something again and again, from outside, while something else runs."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Poller(ABC):
    """A context that looks in a thread of its own."""

    def __init__(self, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=type(self).__name__)

    @abstractmethod
    def poll(self) -> None:
        """Take note of what there is to see now."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(self._every_seconds):
            self.poll()
