"""Owners that are processes of this machine: on a laptop, where every GPU is everyone's that no one holds.

A pid alone is no identity, it is used again; with the process's start time it is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from wattloop_agent.reader.callers import Caller
from wattloop_agent.reader.watched_process import WatchedProcess, start_ticks
from wattloop_agent.refusal import Reason, Refused


class ProcessPeer:
    """A process at the other end of a connection.

    Args:
        process: The process; the peer closes it.
    """

    def __init__(self, process: WatchedProcess) -> None:
        self._process = process
        self._owner = owner_name(process.pid, process.start_ticks)

    async def caller(self) -> Caller:
        """The process, which may use every GPU of the machine.

        Raises:
            Refused: It ended; a child that inherited its socket is not it.
        """
        if self._process.has_ended():
            raise Refused(
                Reason.NOT_PERMITTED, f"{self._owner}, which opened this connection, has ended; open your own"
            )
        return Caller(self._owner, None)

    def close(self) -> None:
        """Watch the process no more."""
        self._process.close()


class ProcessCallers:
    """Identifies callers and owners as processes.

    Args:
        gone: Called with an owner that is watched, once it is gone.
    """

    def __init__(self, gone: Callable[[str], None]) -> None:
        self._gone = gone
        self._watched: set[str] = set()

    def peer(self, connection: socket.socket) -> ProcessPeer:
        """The process that opened this connection.

        Raises:
            Refused: It has ended already.
        """
        try:
            return ProcessPeer(WatchedProcess.of_peer(connection))
        except ProcessLookupError as error:
            raise Refused(Reason.NOT_PERMITTED, f"who opened this connection is gone: {error.strerror}") from error

    def alive(self, owner: str) -> bool:
        """Whether the process is there, and is the same one."""
        pid = _pid(owner)
        return pid is None or owner_name(pid, start_ticks(pid)) == owner

    def watch(self, owner: str) -> None:
        """Call `gone` when the process ends."""
        pid = _pid(owner)
        if pid is None or owner in self._watched:
            return
        try:
            process = WatchedProcess.opened(pid)
        except ProcessLookupError:
            self._gone(owner)
            return
        self._watched.add(owner)
        process.when_ended(lambda: self._ended(owner))

    def _ended(self, owner: str) -> None:
        self._watched.discard(owner)
        self._gone(owner)


def owner_name(pid: int, start: int | None) -> str:
    """The name of an owner that is a process.

    Example:
        >>> owner_name(17, 4711)
        'process:17:4711'
    """
    return f"process:{pid}:{start}"


def _pid(owner: str) -> int | None:
    kind, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    return int(number) if kind == "process" and number.isdecimal() else None
