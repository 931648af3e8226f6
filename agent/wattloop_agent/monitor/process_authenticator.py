"""Owners that are processes of this machine: on a laptop, where every GPU is everyone's that no one holds.

A pid alone is no identity, it is used again; with the process's start time it is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from wattloop_agent.monitor.identity import Caller, UncertainOwners, identification_failed, no_step
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.request_error import Reason, RequestError


class ProcessPeer:
    """A process at the other end of a connection.

    Args:
        process: The process; the peer closes it.
    """

    def __init__(self, process: WatchedProcess) -> None:
        self._process = process
        self._owner = owner_name(process.pid, process.start_ticks)

    @property
    def owner(self) -> str:
        """The process's name as an owner."""
        return self._owner

    async def caller(self) -> Caller:
        """The process, which may use every GPU of the machine.

        Raises:
            RequestError: It ended; a child that inherited its socket is not it. Or the system does
                not tell.
        """
        try:
            ended = self._process.has_ended()
        except OSError as error:
            raise identification_failed(error) from error
        if ended:
            raise RequestError(
                Reason.NOT_PERMITTED, f"{self._owner}, which opened this connection, has ended; open your own"
            )
        return Caller(self._owner, None)

    def close(self) -> None:
        """Watch the process no more."""
        self._process.close()


class ProcessAuthenticator:
    """Identifies callers and owners as processes."""

    def __init__(self) -> None:
        self._uncertain = UncertainOwners()

    def peer(self, connection: socket.socket) -> ProcessPeer:
        """The process that opened this connection.

        Raises:
            RequestError: It has ended already, or the system does not tell.
        """
        try:
            return ProcessPeer(WatchedProcess.of_peer(connection))
        except ProcessLookupError as error:
            raise RequestError(Reason.NOT_PERMITTED, f"who opened this connection is gone: {error.strerror}") from error
        except OSError as error:
            raise identification_failed(error) from error

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:  # noqa: ARG002 - one process is one step
        """Whether the process is there, and is the same one. In doubt: yes."""
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

    def process_of(
        self,
        owner: str,
        step: Callable[[], None] = no_step,  # noqa: ARG002 - one process is one step
    ) -> WatchedProcess | None:
        """The process, for the caller to close.

        None: it is gone, or cannot be looked at now, or the owner is no process.
        """
        pid = _pid(owner)
        if pid is None:
            return None
        try:
            process = WatchedProcess.opened(pid)
        except ProcessLookupError:
            return None
        except OSError:
            return None
        if owner_name(pid, process.start_ticks) == owner:
            return process
        process.close()
        return None


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
