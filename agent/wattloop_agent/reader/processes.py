"""Owners that are processes of this machine: on a laptop, where every GPU is everyone's that no one holds.

A pid alone is no identity, it is used again; with the process's start time it is.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from wattloop_agent.reader.callers import Caller
from wattloop_agent.reader.pidfd import has_ended, peer_process
from wattloop_agent.refusal import Reason, Refused


class ProcessPeer:
    """A process at the other end of a connection.

    Args:
        pidfd: Of the process; the peer closes it.
        owner: Its name.
    """

    def __init__(self, pidfd: int, owner: str) -> None:
        self._pidfd = pidfd
        self._owner = owner

    async def caller(self) -> Caller:
        """The process, which may use every GPU of the machine.

        Raises:
            Refused: It ended; a child that inherited its socket is not it.
        """
        if has_ended(self._pidfd):
            raise Refused(
                Reason.NOT_PERMITTED, f"{self._owner}, which opened this connection, has ended; open your own"
            )
        return Caller(self._owner, None)

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._pidfd)


class ProcessCallers:
    """Identifies callers and owners as processes.

    Args:
        gone: Called with an owner that is watched, once it is gone.
    """

    def __init__(self, gone: Callable[[str], None]) -> None:
        self._gone = gone
        self._watched: dict[str, int] = {}

    def peer(self, connection: socket.socket) -> ProcessPeer:
        """The process that opened this connection.

        Raises:
            Refused: It has ended already.
        """
        try:
            pid, pidfd = peer_process(connection)
        except OSError as error:
            raise Refused(Reason.NOT_PERMITTED, "the process that opened this connection has ended") from error
        owner = owner_of(pid)
        # The start time was read by pid: if the process of the pidfd still is there, it was its own.
        if owner is None or has_ended(pidfd):
            os.close(pidfd)
            raise Refused(Reason.NOT_PERMITTED, f"process {pid}, which opened this connection, has ended")
        return ProcessPeer(pidfd, owner)

    def alive(self, owner: str) -> bool:
        """Whether the process is there, and is the same one."""
        pid = _pid(owner)
        return pid is None or owner_of(pid) == owner

    def watch(self, owner: str) -> None:
        """Call `gone` when the process ends, by its pidfd."""
        pid = _pid(owner)
        if pid is None or owner in self._watched:
            return
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            self._gone(owner)
            return
        self._watched[owner] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, owner)
        if not self.alive(owner):
            self._ended(owner)

    def _ended(self, owner: str) -> None:
        pidfd = self._watched.pop(owner, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
            self._gone(owner)


def owner_of(pid: int) -> str | None:
    """The owner's name of a process that is there: ``process:<pid>:<start time in clock ticks since boot>``.

    Example:
        >>> owner_of(os.getpid()).startswith(f"process:{os.getpid()}:")
        True
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold anything; the rest is after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"process:{pid}:{fields[19]}"


def _pid(owner: str) -> int | None:
    kind, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    return int(number) if kind == "process" and number.isdecimal() else None
