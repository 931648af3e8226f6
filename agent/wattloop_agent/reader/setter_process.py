"""On a laptop the reader starts the setter itself, and starts it again when it dies or hangs.

The two are joined by a socket pair: when the reader dies, however it dies, the setter sees its end close and gives
everything back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Sequence

from wattloop_agent.reader.watched_process import WatchedProcess

logger = logging.getLogger(__name__)

# A change of all GPUs of a node and a write to a slow disk fit into it; a hanging driver does not.
END_SECONDS = 6.0
# A setter starts in a quarter of a second on an idle machine; one that is slower than this gets more the next time.
START_SECONDS = 3.0


class SetterProcess:
    """Keeps one setter process; as an `Opener`, each connection is to a new one.

    Args:
        options: The setter's command line after its module, without the connection.
    """

    start_seconds = START_SECONDS

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False

    @property
    def pid(self) -> int | None:
        """The setter's process; None: there is none."""
        return None if self._process is None else self._process.pid

    async def open(self) -> socket.socket:
        """Start a setter; the one before, which did not answer, is killed first. The new one restores what it held.

        Raises:
            ConnectionAbortedError: The agent ends.
        """
        if self._ending:
            raise ConnectionAbortedError("the agent ends")
        if self._process is not None:
            logger.error("the setter is gone or hangs: starting another", extra={"setter": self._process.pid})
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        ours = self._start()
        ours.setblocking(False)
        return ours

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module; a fork takes a millisecond
                [
                    sys.executable,
                    "-m",
                    "wattloop_agent.setter",
                    "--connection",
                    str(theirs.fileno()),
                    *self._options,
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C and the end of a terminal are told to all of its processes; this one is the reader's to end.
                start_new_session=True,
            )
        return ours

    async def end(self) -> bool:
        """Have the setter give everything back and end; returns whether one did so by itself in time.

        Where the setter had died, or hangs, another is started that finds its connection closed: it gives back what
        the one before has written down, and ends.
        """
        self._ending = True
        if self._process is None:
            return True
        self._process.terminate()
        if await self._ended_well(self._process):
            return True
        logger.error("the setter did not end well: another gives everything back", extra={"setter": self._process.pid})
        self._start().close()
        return await self._ended_well(self._process)

    @staticmethod
    async def _ended_well(process: subprocess.Popen[bytes]) -> bool:
        with contextlib.suppress(TimeoutError):
            await _waited(process)
            return process.returncode == 0
        process.kill()
        await asyncio.to_thread(process.wait)
        return False


async def _waited(process: subprocess.Popen[bytes]) -> None:
    ended = asyncio.Event()
    with contextlib.suppress(ProcessLookupError):
        watched = WatchedProcess.opened(process.pid)
        watched.when_ended(ended.set)
        try:
            async with asyncio.timeout(END_SECONDS):
                await ended.wait()
        finally:
            watched.close()
    process.wait()
