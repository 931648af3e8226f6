"""Runs the power controller of a laptop, and restarts it when it dies or hangs.

Each link is a socket pair. When the monitor dies, however it dies, the power controller sees its
ends close and restores every GPU.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.interruption import EXIT_INTERRUPTED

logger = logging.getLogger(__name__)

# Longer than changing all GPUs of a node and writing to a slow disk take; a hanging driver takes longer.
END_SECONDS = 6.0
# A power controller starts in a quarter of a second on an idle machine; a slower one gets more the next time.
START_SECONDS = 3.0
# A killed process is gone at once, unless a driver keeps it in the kernel.
MAX_KILL_SECONDS = 2.0
LINKS = ("requests", "heartbeats")


class PowerControllerSupervisor:
    """Runs one power controller process, which has one connection for each of `LINKS`.

    Args:
        options: The power controller's command line after its module, without the connections.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        # By link, the connection to the current process that the link has not taken yet.
        self._connections: dict[str, socket.socket] = {}
        self._ending = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The power controller's process; None: there is none."""
        return None if self._process is None else self._process.pid

    def connection(self, link: str) -> socket.socket:
        """The next connection of a link; from any thread.

        A link that asks for a second connection to the current process reports that the process is
        gone or hangs: it is killed, and replaced by another, which restores what it held.

        Raises:
            OSError: The agent ends, or the process can't be ended or started.
        """
        with self._lock:
            if self._ending:
                raise ConnectionAbortedError("the agent ends")
            if link not in self._connections:
                self._kill_current()
                self._start()
            return self._connections.pop(link)

    def kill_hung(self, link: str) -> None:
        """Kill the process that did not answer this link, unless it was replaced meanwhile; from any thread."""
        with self._lock:
            if self._process is not None and link not in self._connections and not self._ending:
                self._process.kill()

    def end(self) -> bool:
        """Have the power controller restore every GPU and end; returns whether it did so in time.

        Where it has died or hangs, another is started whose connections are closed: it restores
        what the first one had written down, and ends.
        """
        self._ending = True
        # A link may be starting another process.
        with self._lock:
            if self._process is None:
                return True
            self._process.terminate()
            ended = _ended_cleanly(self._process)
            if not ended:
                message = "the power controller did not end cleanly; another one restores the GPUs"
                logger.error(message, extra={"pid": self._process.pid})
                self._start()
                self._close_connections()
                ended = _ended_cleanly(self._process)
            self._close_connections()
            return ended

    def _kill_current(self) -> None:
        if self._process is None:
            return
        logger.error("the power controller is gone or hangs; starting another", extra={"pid": self._process.pid})
        self._process.kill()
        try:
            self._process.wait(MAX_KILL_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the power controller, process {self._process.pid}, hangs in the kernel") from error

    def _start(self) -> None:
        self._close_connections()
        with contextlib.ExitStack() as stack:
            inherited = []
            for link in LINKS:
                self._connections[link], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                inherited.append(stack.enter_context(end))
            descriptors = [end.fileno() for end in inherited]
            # -P: no file of the current folder is imported instead of a module.
            module = [sys.executable, "-P", "-m", "wattloop_agent.power_controller_main"]
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package; a fork takes a millisecond
                [*module, "--connection", *map(str, descriptors), *self._options],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A terminal sends Ctrl-C and its end to all its processes; only the monitor ends this one.
                start_new_session=True,
            )

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _ended_cleanly(process: subprocess.Popen[bytes]) -> bool:
    try:
        return process.wait(END_SECONDS) in {0, EXIT_INTERRUPTED}
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


@dataclass(frozen=True)
class SupervisorConnector:
    """Connects one of `LINKS` to a supervised power controller."""

    supervisor: PowerControllerSupervisor
    link: str
    start_seconds: float = START_SECONDS

    def connect(self) -> socket.socket:
        """See `PowerControllerSupervisor.connection`."""
        return self.supervisor.connection(self.link)

    def handle_timeout(self) -> None:
        """See `PowerControllerSupervisor.kill_hung`."""
        self.supervisor.kill_hung(self.link)
