"""A process that is told from every other, also from one that gets its pid later, and that says when it ends.

By pidfd where the kernel has them and lets us (Linux 5.3; a container's seccomp profile may not),
else by its start time, looked at again and again.
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

# Linux 6.5 and newer: a pidfd of the process that connected, made when it did. Not in the socket
# module yet.
_SO_PEERPIDFD = 77
_NO_PEER_PIDFD = frozenset({errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM})
POLL_SECONDS = 0.2


class WatchedProcess:
    """One process, by pidfd or by pid and start time.

    Args:
        pid: In our PID namespace.
        pidfd: Of the process; closed with this. None: there are none here.

    Raises:
        ProcessLookupError: It has ended.
        OSError: It is not known whether it has.
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
        # The start time was read by pid: if the process of the pidfd still is there, it was its
        # own.
        if start is None or (pidfd is not None and _readable(pidfd)):
            self.close()
            raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")
        self.start_ticks = start

    @classmethod
    def opened(cls, pid: int) -> Self:
        """The process that has this pid now.

        Raises:
            ProcessLookupError: There is none.
            OSError: It is not known whether there is.
        """
        return cls(pid, _pidfd(pid))

    @classmethod
    def of_peer(cls, connection: socket.socket) -> Self:
        """The process that opened this connection.

        Raises:
            ProcessLookupError: It has ended, or is in no PID namespace that we see.
            OSError: It is not known whether it has ended.
        """
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if pid == 0:
            raise ProcessLookupError(errno.ESRCH, "a process that is not seen from here (the agent needs hostPID)")
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            if error.errno in _NO_PEER_PIDFD:
                return cls.opened(pid)
            if error.errno in (errno.ESRCH, errno.EINVAL):
                raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended") from error
            # By its number another process could be taken for it, which has the number by now.
            raise
        return cls(pid, pidfd)

    @property
    def descriptor(self) -> int | None:
        """The pidfd, which can be read once the process has ended; None: there are none here."""
        return self._pidfd

    def has_ended(self) -> bool:
        """Whether it has ended.

        Raises:
            OSError: It is not known.
        """
        if self._pidfd is not None:
            return _readable(self._pidfd)
        return start_ticks(self.pid) != self.start_ticks

    def when_ended(self, call: Callable[[], None]) -> None:
        """Close this and call, once, on the running event loop, when it has ended."""

        def ended() -> None:
            self.close()
            call()

        def look() -> None:
            # A look that failed tells nothing; the next one may.
            with contextlib.suppress(OSError):
                if self.has_ended():
                    ended()
                    return
            self._timer = loop.call_later(POLL_SECONDS, look)

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

    Raises:
        OSError: It is not known, as where no descriptor or memory is left; the process may be
            there.

    Example:
        >>> start_ticks(os.getpid()) == start_ticks(os.getpid()) is not None
        True
    """
    path = processes / str(pid) / "stat"
    try:
        stat = path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, which may hold any bytes; the rest is
    # after the last one.
    fields = stat.rpartition(b")")[2].split()
    try:
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (IndexError, ValueError) as error:
        raise OSError(errno.EIO, "not in the form that proc(5) describes", str(path)) from error


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
