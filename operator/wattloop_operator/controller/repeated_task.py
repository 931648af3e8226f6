"""A thread that repeats a task: after a change of its objects, and at an interval."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.cluster.api import RejectedError

logger = logging.getLogger(__name__)

# However often the objects change.
MIN_SECONDS = 1.0


class RepeatedTask:
    """Brings something up to date again and again; a problem is logged when it changes.

    Args:
        name: Name of the thread.
        what: What is brought up to date, for messages.
        run: The task.
        seconds: Interval without a change.
    """

    def __init__(self, name: str, what: str, run: Callable[[], object], seconds: float) -> None:
        self.thread = WatchedThread(self._run, name)
        self._what = what
        self._task = run
        self._seconds = seconds
        self._changed = threading.Event()
        self._stopping = threading.Event()

    def wake(self) -> None:
        """Run it soon: an object has changed."""
        self._changed.set()

    def stop(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._changed.set()

    def _run(self) -> None:
        logged = ""
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                self._task()
            except Exception as error:
                # Training does not depend on what is written; an unexpected error is logged with its traceback.
                expected = isinstance(error, OperationError | RejectedError)
                if str(error) != logged:
                    logger.warning("%s are not up to date: %s", self._what, error, exc_info=not expected)
                logged = str(error)
            else:
                logged = ""
            if not self._stopping.wait(MIN_SECONDS):
                self._changed.wait(self._seconds - MIN_SECONDS)
