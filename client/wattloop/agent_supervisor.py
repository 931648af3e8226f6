"""Starts the node agent again whenever it ends: at once, and ever later where it ends soon after each start."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable

from wattloop.agent import AgentUnavailable

logger = logging.getLogger("wattloop")

# Of starting it again, one after another.
MAX_FAILURES = 3
# An agent that served for so long did not end of its start: the next one is started at once.
LONG_RUN_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 30.0


class RestartPause:
    """How long to wait before the next start, by how long the agents before ran.

    Example:
        >>> pause = RestartPause()
        >>> [pause.after(ran_seconds) for ran_seconds in (3600.0, 0.0, 0.0, 0.0, 60.0)]
        [0.0, 0.0, 0.1, 0.2, 0.0]
    """

    def __init__(self) -> None:
        self._short_runs = 0

    def after(self, ran_seconds: float) -> float:
        """The pause after an agent that ran for so long, in seconds: none after the first short run, then doubling."""
        self._short_runs = 0 if ran_seconds >= LONG_RUN_SECONDS else self._short_runs + 1
        if self._short_runs < 2:
            return 0.0
        # Doubled a few times it is beyond the longest; doubled a thousand times it is no number any more.
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._short_runs - 2, 20), MAX_PAUSE_SECONDS)


class AgentSupervisor:
    """Keeps one agent running until it is told to end it.

    Args:
        start: Starts an agent that serves when this returns; raises `wattloop.agent.AgentUnavailable`.
        end: Ends one.
        clock: Measures how long each ran.
        ends_within: Waits for so many seconds and tells whether the agent is to end; default: until it is told to.

    Raises:
        AgentUnavailable: The first can't be started.
    """

    def __init__(
        self,
        start: Callable[[], subprocess.Popen[bytes]],
        end: Callable[[subprocess.Popen[bytes]], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        ends_within: Callable[[float], bool] | None = None,
    ) -> None:
        self._start = start
        self._end = end
        self._clock = clock
        self._ending = threading.Event()
        self._ends_within = ends_within or self._ending.wait
        self._lock = threading.Lock()
        self._process = start()
        self._began = clock()

    def keep(self) -> None:
        """Start it again whenever it ends, until `end` is called or it could not be started several times in a row."""
        pause, failures = RestartPause(), 0
        while failures < MAX_FAILURES:
            code = self._process.wait()
            seconds = pause.after(self._clock() - self._began)
            if not self._ending.is_set():
                logger.warning("the node agent ended with %d; starting it again%s", code, _in(seconds))
            if self._ends_within(seconds):
                return
            failures = 0 if self._started_again() else failures + 1
        if not self._ending.is_set():
            logger.error("the node agent does not start any more: energy is not measured, no power limit is held")

    def _started_again(self) -> bool:
        with self._lock:
            if self._ending.is_set():
                return False
            try:
                self._process = self._start()
            except AgentUnavailable as error:
                logger.warning("%s", error)
                return False
            finally:
                self._began = self._clock()
            return True

    def end(self) -> None:
        """Have it give every GPU back and end; none is started any more."""
        with self._lock:
            self._ending.set()
            self._end(self._process)


def _in(seconds: float) -> str:
    return f" in {seconds:g} s" if seconds else ""
