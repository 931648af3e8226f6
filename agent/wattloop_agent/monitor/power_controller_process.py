"""On a laptop the monitor starts the power controller itself, and starts it again when it dies or hangs.

The two are joined by a socket pair a link: when the monitor dies, however it dies, the power controller sees
the ends close and
gives everything back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from wattloop.interruption import EXIT_INTERRUPTED
from wattloop_agent.monitor.watched_process import WatchedProcess

logger = logging.getLogger(__name__)

# A change of all GPUs of a node and a write to a slow disk fit into it; a hanging driver does not.
END_SECONDS = 6.0
# A power controller starts in a quarter of a second on an idle machine; one that is slower than this gets
# more the next time.
START_SECONDS = 3.0
# A process that was killed is gone at once, unless a driver keeps it in the kernel.
MAX_KILL_SECONDS = 2.0
LINKS = ("requests", "heartbeats")


class PowerControllerProcess:
    """Keeps one power controller process, which has one connection for each of `LINKS`.

    Args:
        options: The power controller's command line after its module, without the connections.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        # By link, the connection to the process of now that the link has not taken yet.
        self._connections: dict[str, socket.socket] = {}
        self._ending = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The power controller's process; None: there is none."""
        return None if self._process is None else self._process.pid

    def connection(self, link: str) -> socket.socket:
        """The next connection of a link; from any thread.

        A link that has taken its connection to the process of now and asks for another one says that this process is
        gone or hangs: it is killed, and another is started that restores what it held.

        Args:
            link: One of `LINKS`.

        Raises:
            OSError: The agent ends, or the process can't be ended or started.
        """
        with self._lock:
            if self._ending:
                raise ConnectionAbortedError("the agent ends")
            if link not in self._connections:
                self._end_hanging()
                self._start()
            return self._connections.pop(link)

    def hangs(self, link: str) -> None:
        """Kill the process that did not answer this link, unless it was replaced meanwhile; from any thread.

        Args:
            link: One of `LINKS`.
        """
        with self._lock:
            if self._process is not None and link not in self._connections and not self._ending:
                self._process.kill()

    def _end_hanging(self) -> None:
        if self._process is None:
            return
        logger.error(
            "the power controller is gone or hangs: starting another", extra={"power-controller": self._process.pid}
        )
        self._process.kill()
        try:
            self._process.wait(MAX_KILL_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the power controller, process {self._process.pid}, hangs in the kernel") from error

    def _start(self) -> None:
        self._close_connections()
        with contextlib.ExitStack() as stack:
            theirs = []
            for link in LINKS:
                self._connections[link], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                theirs.append(stack.enter_context(end))
            descriptors = [end.fileno() for end in theirs]
            self._process = subprocess.Popen(  # noqa: S603 - our own module; a fork takes a millisecond
                [
                    sys.executable,
                    "-m",
                    "wattloop_agent.commands.power_controller",
                    "--connection",
                    *map(str, descriptors),
                    *self._options,
                ],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C and the end of a terminal are told to all of its processes; this one is the monitor's to end.
                start_new_session=True,
            )

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def end(self) -> bool:
        """Have the power controller give everything back and end; returns whether one did so by itself in time.

        Where the power controller had died, or hangs, another is started that finds its connections closed:
        it gives back what
        the one before has written down, and ends.
        """
        self._ending = True
        # A link may be starting another just now.
        await asyncio.to_thread(self._lock.acquire)
        try:
            return await self._end()
        finally:
            self._close_connections()
            self._lock.release()

    async def _end(self) -> bool:
        if self._process is None:
            return True
        self._process.terminate()
        if await self._ended_well(self._process):
            return True
        logger.error(
            "the power controller did not end well: another gives everything back",
            extra={"power-controller": self._process.pid},
        )
        self._start()
        self._close_connections()
        return await self._ended_well(self._process)

    @staticmethod
    async def _ended_well(process: subprocess.Popen[bytes]) -> bool:
        with contextlib.suppress(TimeoutError):
            await _waited(process)
            return process.returncode in {0, EXIT_INTERRUPTED}
        process.kill()
        await asyncio.to_thread(process.wait)
        return False


async def _waited(process: subprocess.Popen[bytes]) -> None:
    ended = asyncio.Event()
    with contextlib.suppress(ProcessLookupError):
        try:
            watched = WatchedProcess.opened(process.pid)
        except ProcessLookupError:
            raise
        except OSError:
            # No descriptor is left to watch it by.
            try:
                await asyncio.to_thread(process.wait, END_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError from error
            return
        watched.when_ended(ended.set)
        try:
            async with asyncio.timeout(END_SECONDS):
                await ended.wait()
        finally:
            watched.close()
    process.wait()


class ProcessOpener:
    """Opens the connections of one link to a power controller process.

    Args:
        process: The power controller process.
        link: One of `LINKS`.
    """

    start_seconds = START_SECONDS

    def __init__(self, process: PowerControllerProcess, link: str) -> None:
        self._process = process
        self._link = link

    def open(self) -> socket.socket:
        """The link's next connection; see `PowerControllerProcess.connection`.

        Raises:
            OSError: There is no power controller now.
        """
        return self._process.connection(self._link)

    def hangs(self) -> None:
        """Kill the power controller; see `PowerControllerProcess.hangs`."""
        self._process.hangs(self._link)
