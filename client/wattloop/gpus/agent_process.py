"""Runs the node agent as a child process, for the local mode, for tests and for notebooks.

It is restarted when it ends: immediately, and with exponential backoff if it keeps ending soon.
"""

import contextlib
import functools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from wattloop import interruption
from wattloop.files.atomic_write import private_opener
from wattloop.gpus.agent import AgentUnavailable
from wattloop.threads import WatchedThread

logger = logging.getLogger("wattloop")

# Maximum number of consecutive failed restarts.
MAX_FAILURES = 3
# An agent that ran for this long resets the backoff.
LONG_RUN_SECONDS = 10.0
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 30.0


def backoff_seconds(short_runs: int) -> float:
    """The delay after so many agents in a row that ended soon: 0 after the first, then doubling.

    Example:
        >>> [backoff_seconds(short_runs) for short_runs in range(5)]
        [0.0, 0.0, 0.1, 0.2, 0.4]
    """
    # The bounded exponent avoids an overflow.
    return 0.0 if short_runs < 2 else min(FIRST_BACKOFF_SECONDS * 2.0 ** min(short_runs - 2, 20), MAX_BACKOFF_SECONDS)


class AgentSupervisor:
    """Keeps one agent running until `stop` is called.

    Args:
        start: Starts an agent, and returns once it serves; raises `wattloop.gpus.agent.AgentUnavailable`.
        stop: Stops an agent.
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
        short_runs = failures = 0
        while failures < MAX_FAILURES:
            code = self._process.wait()
            short_runs = 0 if self._clock() - self._began >= LONG_RUN_SECONDS else short_runs + 1
            seconds = backoff_seconds(short_runs)
            if not self._stopping.is_set():
                later = f" in {seconds:g} s" if seconds else ""
                logger.warning("the node agent ended with %d; restarting it%s", code, later)
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


# Enough for a change of all GPUs and for a power controller that hangs; see the agent's own timeouts.
STOP_SECONDS = 10.0


def start_agent(
    socket: Path,
    state_directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> subprocess.Popen[bytes]:
    """Start an agent that ends with this process at the latest, and return once it serves its socket.

    If this process is killed, the agent restores every GPU and ends. If the agent is killed, its power
    controller restores every GPU. The agent has a session of its own, so that Ctrl-C does not end it
    before the last energy reading; `stop_agent` ends it.

    Args:
        socket: Path of the agent's socket; the kernel allows at most 107 bytes.
        state_directory: Folder of the agent's leases.
        environment: The agent's environment; default: this process's.
        log: A file to append the agent's log to; default: this process's stderr.
        on_start: Called with the agent's process id before the agent serves.

    Raises:
        AgentUnavailable: The agent cannot be started, its log cannot be written, it ended before it
            served (its log says why), or the ``agent`` extra is not installed.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile; the agent has ended.
    """
    reading, writing = os.pipe()
    options = {
        "--socket": socket,
        "--state-directory": state_directory,
        "--watch-parent": os.getpid(),
        "--ready-descriptor": writing,
    }
    # -P: no file of the current folder is imported instead of a module. The parent of a clone has a folder `wattloop`.
    command = [sys.executable, "-P", "-m", "wattloop_agent", *(str(word) for each in options.items() for word in each)]
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reading)
        try:
            with contextlib.ExitStack() as child:
                child.callback(os.close, writing)
                stderr = None if log is None else child.enter_context(open(log, "ab", opener=private_opener))
                process = subprocess.Popen(  # noqa: S603 - our own module
                    command,
                    env=None if environment is None else dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=[writing],
                    start_new_session=True,
                )
        except OSError as error:
            raise AgentUnavailable(f"the agent for {socket} cannot be started: {error}") from error
        on_start(process.pid)
        if interruption.call_cancellable(lambda: os.read(reading, 16), lambda: stop_agent(process)):
            return process
    code = process.wait()
    hint = f"its log is {log}" if log is not None else "its log is above"
    raise AgentUnavailable(f"the agent for {socket} ended with {code} before it served; {hint}")


def stop_agent(process: subprocess.Popen[bytes]) -> int:
    """Stop an agent, which restores every GPU; returns 0 on success, else the agent's exit code."""
    process.terminate()
    try:
        code = process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return 0 if code == interruption.EXIT_INTERRUPTED else code


@contextlib.contextmanager
def running_agent(
    socket: Path,
    state_directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """Run an agent during a block and restart it when it ends, as the kubelet does on a node.

    Restarts back off exponentially up to half a minute if the agent keeps ending soon. Connections
    reconnect to the next agent and hold the same settings there.

    Raises:
        AgentUnavailable: As in `start_agent`, for the first agent.
    """
    start = functools.partial(start_agent, socket, state_directory, environment=environment, log=log, on_start=on_start)
    supervisor = AgentSupervisor(start, stop_agent)
    thread = WatchedThread(supervisor.run, "wattloop-agent-supervisor", may_return=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()
