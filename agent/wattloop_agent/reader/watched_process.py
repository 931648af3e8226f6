"""A process that is told from every other, also from one that gets its pid later, and that says when it ends.

By pidfd where the kernel has them and lets us (Linux 5.3; a container's seccomp profile may not), else by its start
time, looked at again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Self

# Linux 6.5 and newer: a pidfd of the process that connected, made when it did. Not in the socket module yet.
_SO_PEERPIDFD = 77
LOOK_AGAIN_SECONDS = 0.2


class WatchedProcess:
    """One process, by pidfd or by pid and start time.

    Args:
        pid: In our PID namespace.
        pidfd: Of the process; closed with this. None: there are none here.

    Raises:
        ProcessLookupError: It has ended.
    """

    def __init__(self, pid: int, pidfd: int | None) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._timer: asyncio.TimerHandle | None = None
        start = start_ticks(pid)
        # The start time was read by pid: if the process of the pidfd still is there, it was its own.
        if start is None or (pidfd is not None and _readable(pidfd)):
            self.close()
            raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")
        self.start_ticks = start

    @classmethod
    def opened(cls, pid: int) -> Self:
        """The process that has this pid now.

        Raises:
            ProcessLookupError: There is none.
        """
        return cls(pid, _pidfd(pid))

    @classmethod
    def of_peer(cls, connection: socket.socket) -> Self:
        """The process that opened this connection.

        Raises:
            ProcessLookupError: It has ended, or is in no PID namespace that we see.
        """
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if pid == 0:
            raise ProcessLookupError(errno.ESRCH, "a process that is not seen from here (the agent needs hostPID)")
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError:
            return cls.opened(pid)
        return cls(pid, pidfd)

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self._pidfd is not None:
            return _readable(self._pidfd)
        return start_ticks(self.pid) != self.start_ticks

    def when_ended(self, call: Callable[[], None]) -> None:
        """Close this and call, once, on the running event loop, when it has ended."""

        def ended() -> None:
            self.close()
            call()

        def look() -> None:
            if self.has_ended():
                ended()
            else:
                self._timer = loop.call_later(LOOK_AGAIN_SECONDS, look)

        loop = asyncio.get_running_loop()
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, ended)
        else:
            look()

    def close(self) -> None:
        """Watch it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pidfd is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def start_ticks(pid: int, processes: Path = Path("/proc")) -> int | None:
    """When a process that is there started, in clock ticks since boot; None: there is none, or a zombie.

    Example:
        >>> start_ticks(os.getpid()) == start_ticks(os.getpid()) is not None
        True
    """
    try:
        stat = (processes / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold anything; the rest is after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def _readable(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
