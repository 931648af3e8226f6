"""Identifies callers and lease owners as processes of this machine.

On a laptop every process may use every GPU. An owner is a pid with the process's start time, since pids are reused.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from wattloop.gpus.gpu_processes import others_among
from wattloop_agent.monitor.identity import (
    SocketCaller,
    UncertainOwners,
    identification_failed,
    no_step,
    process_of_peer,
)
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.refusals import Reason, RequestError


class ProcessPeer:
    """A process at the other end of a connection; see `Peer`."""

    def __init__(self, process: WatchedProcess) -> None:
        self._process = process
        self.owner = owner_name(process.pid, process.start_ticks)

    async def caller(self) -> SocketCaller:
        """The process, which may use every GPU of the machine; a child that inherited the socket is another owner."""
        try:
            ended = self._process.has_ended()
        except OSError as error:
            raise identification_failed(error) from error
        if ended:
            raise RequestError(
                Reason.NOT_PERMITTED, f"{self.owner}, which opened this connection, has ended; open your own"
            )
        return SocketCaller(self.owner, None)

    def close(self) -> None:
        """Stop watching the process."""
        self._process.close()


class ProcessAuthenticator:
    """Identifies callers and lease owners as processes; see `Authenticator`."""

    def __init__(self) -> None:
        self._uncertain = UncertainOwners()

    def peer(self, connection: socket.socket) -> ProcessPeer:
        """The process that opened this connection."""
        return ProcessPeer(process_of_peer(connection))

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:  # noqa: ARG002 - one process is one step
        """Whether the process runs, and is the same one; True where it is unknown."""
        pid = _pid(owner)
        if pid is None:
            return True
        try:
            start = start_ticks(pid)
        except OSError as error:
            self._uncertain.add(owner, error)
            return True
        self._uncertain.clear(owner)
        return owner_name(pid, start) == owner

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:  # noqa: ARG002
        """The process; None: it is gone, can't be read now, or the owner is no process."""
        pid = _pid(owner)
        if pid is None:
            return None
        try:
            process = WatchedProcess.opened(pid)
        except OSError:
            return None
        if owner_name(pid, process.start_ticks) == owner:
            return process
        process.close()
        return None

    def others(self, owner: str, pids: Sequence[int], *, is_complete: bool) -> tuple[tuple[str, ...], str]:
        """A caller's own processes are its relatives and those of its training."""
        return others_among(pids, _pid(owner) or 0, is_complete=is_complete)


def owner_name(pid: int, start: int | None) -> str:
    """The owner name of a process.

    Example:
        >>> owner_name(17, 4711)
        'process:17:4711'
    """
    return f"process:{pid}:{start}"


def _pid(owner: str) -> int | None:
    kind, _, rest = owner.partition(":")
    number = rest.partition(":")[0]
    return int(number) if kind == "process" and number.isdecimal() else None
