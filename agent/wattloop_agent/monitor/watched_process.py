"""Watches one process, distinguishes it from a later one with the same pid, and reports its end.

It uses a pidfd where the kernel offers one (Linux 5.3; a container's seccomp profile may forbid
it), else it polls the start time.
"""

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

# Linux 6.5 and newer: a pidfd of the connected process, created when it connected. Not in the socket module yet.
_SO_PEERPIDFD = 77
_NO_PEER_PIDFD = frozenset({errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM})
POLL_SECONDS = 0.2


class WatchedProcess:
    """One process, identified by a pidfd, closed with this, or by pid and start time.

    `ProcessLookupError` says that it has ended, another `OSError` that this is unknown.
    """

    def __init__(self, pid: int, pidfd: int | None) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._timer: asyncio.TimerHandle | None = None
        try:
            start = start_ticks(pid)
        except OSError:
            self.close()
            raise
        # The start time was read by pid: if the process of the pidfd still is there, it was its own.
        if start is None or (pidfd is not None and _readable(pidfd)):
            self.close()
            raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")
        self.start_ticks = start

    @classmethod
    def opened(cls, pid: int) -> Self:
        """The process that has this pid now."""
        return cls(pid, _pidfd(pid))

    @classmethod
    def of_peer(cls, connection: socket.socket) -> Self:
        """The process that opened this connection; one in an invisible PID namespace counts as ended."""
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if pid == 0:
            raise ProcessLookupError(errno.ESRCH, "a process that is invisible from here (the agent needs hostPID)")
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            if error.errno in _NO_PEER_PIDFD:
                return cls.opened(pid)
            if error.errno in (errno.ESRCH, errno.EINVAL):
                raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended") from error
            # Looking it up by pid could find another process that has reused the pid.
            raise
        return cls(pid, pidfd)

    @property
    def descriptor(self) -> int | None:
        """The pidfd, which becomes readable when the process ends; None: the kernel offers none."""
        return self._pidfd

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self._pidfd is not None:
            return _readable(self._pidfd)
        return start_ticks(self.pid) != self.start_ticks

    def when_ended(self, call: Callable[[], None]) -> None:
        """When the process ends, close this and call a function once, on the running event loop."""

        def ended() -> None:
            self.close()
            call()

        def poll() -> None:
            # A failed read says nothing; try again.
            with contextlib.suppress(OSError):
                if self.has_ended():
                    ended()
                    return
            self._timer = loop.call_later(POLL_SECONDS, poll)

        loop = asyncio.get_running_loop()
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, ended)
        else:
            poll()

    def close(self) -> None:
        """Stop watching the process."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pidfd is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def start_ticks(pid: int, processes: Path = Path("/proc")) -> int | None:
    """The start time of a process, in clock ticks since boot; None: there is none, or it is a zombie.

    Raises:
        OSError: It is unknown, for example because no descriptor or memory is left; the process may run.

    Example:
        >>> start_ticks(os.getpid()) == start_ticks(os.getpid()) is not None
        True
    """
    path = processes / str(pid) / "stat"
    try:
        stat = path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, which may hold any bytes; the rest is after the last one.
    fields = stat.rpartition(b")")[2].split()
    try:
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (IndexError, ValueError) as error:
        raise OSError(errno.EIO, "its format is not that of proc(5)", str(path)) from error


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
