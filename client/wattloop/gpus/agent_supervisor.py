"""Restarts the node agent when it ends: immediately, and with exponential backoff if it keeps ending soon."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable

from wattloop.gpus.agent import AgentUnavailable

logger = logging.getLogger("wattloop")

# Maximum number of consecutive failed restarts.
MAX_FAILURES = 3
# An agent that ran for this long resets the backoff.
LONG_RUN_SECONDS = 10.0
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 30.0


class RestartBackoff:
    """The delay before the next start, from the run times of the agents before.

    Example:
        >>> backoff = RestartBackoff()
        >>> [backoff.after(ran_seconds) for ran_seconds in (3600.0, 0.0, 0.0, 0.0, 60.0)]
        [0.0, 0.0, 0.1, 0.2, 0.0]
    """

    def __init__(self) -> None:
        self._short_runs = 0

    def after(self, ran_seconds: float) -> float:
        """The delay in seconds after an agent that ran for this long: 0 after the first short run, then doubling."""
        self._short_runs = 0 if ran_seconds >= LONG_RUN_SECONDS else self._short_runs + 1
        if self._short_runs < 2:
            return 0.0
        # The bounded exponent avoids an overflow.
        return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(self._short_runs - 2, 20), MAX_BACKOFF_SECONDS)


class AgentSupervisor:
    """Keeps one agent running until `stop` is called.

    Args:
        start: Starts an agent, and returns once it serves; raises `wattloop.gpus.agent.AgentUnavailable`.
        stop: Stops an agent.
        clock: Measures the run time of each agent.
        stopped_within: Waits for this number of seconds and returns whether `stop` was called meanwhile.

    Raises:
        AgentUnavailable: The first agent cannot be started.
    """

    def __init__(
        self,
        start: Callable[[], subprocess.Popen[bytes]],
        stop: Callable[[subprocess.Popen[bytes]], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        stopped_within: Callable[[float], bool] | None = None,
    ) -> None:
        self._start = start
        self._stop = stop
        self._clock = clock
        self._stopping = threading.Event()
        self._stopped_within = stopped_within or self._stopping.wait
        self._lock = threading.Lock()
        self._process = start()
        self._began = clock()

    def run(self) -> None:
        """Restart the agent when it ends, until `stop` is called or too many consecutive restarts fail."""
        backoff, failures = RestartBackoff(), 0
        while failures < MAX_FAILURES:
            code = self._process.wait()
            seconds = backoff.after(self._clock() - self._began)
            if not self._stopping.is_set():
                logger.warning("the node agent ended with %d; restarting it%s", code, _in(seconds))
            if self._stopped_within(seconds):
                return
            failures = 0 if self._restarted() else failures + 1
        if not self._stopping.is_set():
            logger.error("the node agent cannot be restarted: energy is not measured, no power limit is held")

    def _restarted(self) -> bool:
        with self._lock:
            if self._stopping.is_set():
                return False
            try:
                self._process = self._start()
            except AgentUnavailable as error:
                logger.warning("%s", error)
                return False
            finally:
                self._began = self._clock()
            return True

    def stop(self) -> None:
        """Stop the agent, which restores every GPU, without a restart."""
        with self._lock:
            self._stopping.set()
            self._stop(self._process)


def _in(seconds: float) -> str:
    return f" in {seconds:g} s" if seconds else ""
