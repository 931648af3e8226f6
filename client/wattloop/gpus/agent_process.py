"""Runs the node agent as a child process, for the local mode, for tests and for notebooks.

It is restarted when it ends: immediately, and with exponential backoff if it keeps ending soon.
"""

from __future__ import annotations

import contextlib
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


# Enough for a change of all GPUs and for a power controller that hangs; see the agent's own timeouts.
STOP_SECONDS = 10.0


def start_agent(
    socket: Path,
    state_directory: Path,
    *,
    nvml_library: Path | None = None,
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
        nvml_library: The ``libnvidia-ml.so.1`` to load instead of the system's.
        environment: The agent's environment; default: this process's.
        log: A file to append the agent's log to; default: this process's stderr.
        on_start: Called with the agent's process id before the agent serves.

    Raises:
        AgentUnavailable: The agent cannot be started, its log cannot be written, it ended before it
            served (its log says why), or the ``agent`` extra is not installed.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile; the agent has ended.
    """
    reading, writing = os.pipe()
    command = [
        sys.executable,
        # No file of the current folder is imported instead of a module: the parent of a clone has a folder `wattloop`.
        "-P",
        "-m",
        "wattloop_agent",
        "--socket",
        str(socket),
        "--state-directory",
        str(state_directory),
        "--watch-parent",
        str(os.getpid()),
        "--ready-descriptor",
        str(writing),
    ]
    if nvml_library is not None:
        command += ["--nvml-library", str(nvml_library)]
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
    nvml_library: Path | None = None,
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

    def start() -> subprocess.Popen[bytes]:
        return start_agent(
            socket, state_directory, nvml_library=nvml_library, environment=environment, log=log, on_start=on_start
        )

    supervisor = AgentSupervisor(start, stop_agent)
    thread = WatchedThread(supervisor.run, "wattloop-agent-supervisor", may_return=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()
