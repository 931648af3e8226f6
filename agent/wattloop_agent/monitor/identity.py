"""Identity: who a connection belongs to, and whether the owner of a lease is still alive.

A caller is identified by what the kernel reports about its socket, never by what it claims. On a laptop an owner is a
process, its pid with its start time, since pids are reused; on a node it is a pod (`pods.pod_authenticator`).
"""

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattloop.gpus.gpu_processes import others_among
from wattloop_agent import refusals
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SocketCaller:
    """The identified client of a connection.

    Attributes:
        owner: The name that its leases are held under, unique within a boot.
        gpus: Uuids of the GPUs that only it may use; None: every GPU of the machine.
        shared: Uuids of the GPUs that it shares with others: it may read them, not set them.
        namespace: The namespace of its pod; None: it is no pod.
    """

    owner: str
    gpus: frozenset[str] | None
    shared: frozenset[str] = frozenset()
    namespace: str | None = None

    @property
    def has_gpus(self) -> bool:
        """Whether it has any GPU, exclusive or shared."""
        return self.gpus is None or bool(self.gpus or self.shared)

    def sees(self, gpu: str) -> bool:
        """Whether it may read this GPU."""
        return self.gpus is None or gpu in self.gpus or gpu in self.shared

    def require_seen(self, gpus: tuple[str, ...]) -> None:
        """Refuse GPUs that the caller may not read, by `Reason.NOT_YOURS`."""
        unseen = [gpu for gpu in gpus if not self.sees(gpu)]
        if unseen:
            raise refusals.not_assigned(self.owner, unseen, (self.gpus or frozenset()) | self.shared)

    def require_own(self, gpus: tuple[str, ...]) -> None:
        """Refuse GPUs that the caller may not set, by `Reason.NOT_YOURS`, or `Reason.SHARED` if others use them too."""
        self.require_seen(gpus)
        shared = [gpu for gpu in gpus if gpu in self.shared]
        if shared:
            raise refusals.shared(shared)


class Peer(Protocol):
    """The other end of one connection.

    Identify it at every request: the process may end or move meanwhile.

    Attributes:
        owner: The name of its owner at the time of the connection.
    """

    owner: str

    async def caller(self) -> SocketCaller:
        """Its current identity; `RequestError`: it has ended, may not call, or is not reported by the system."""

    def close(self) -> None:
        """Stop watching its process."""


def no_step() -> None:
    """The default of `step`: do nothing between two processes."""


class Authenticator(Protocol):
    """Identifies connections and the owners of leases.

    `alive` and `process_of` are called from one thread, which is not the event loop's, and call `step` repeatedly
    while they scan the node's processes, which may take seconds.
    """

    def peer(self, connection: socket.socket) -> Peer:
        """The other end of an accepted connection; `RequestError`: it may not call, or is not reported."""

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        """Whether this owner, perhaps named by an earlier agent, is alive; True where that is unknown."""

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        """A process of this owner, which the caller closes; None: none is found now, or it is of another kind."""

    def others(self, owner: str, pids: Sequence[int], *, is_complete: bool) -> tuple[tuple[str, ...], str]:
        """Which of these processes on a GPU are not the owner's, and why there may be more; empty if there are none.

        Args:
            owner: The owner of a connection.
            pids: The driver's list.
            is_complete: See `others_among`.
        """


class UncertainOwners:
    """Owners whose liveness check failed; logs one line per owner until a check succeeds."""

    def __init__(self) -> None:
        self._owners: set[str] = set()

    def add(self, owner: str, error: OSError) -> None:
        """Record that the check failed; the owner counts as alive."""
        if owner not in self._owners:
            self._owners.add(owner)
            extra = {"owner": owner, "error": str(error)}
            logger.warning("owner liveness unknown: the owner counts as alive and keeps its leases", extra=extra)

    def clear(self, owner: str) -> None:
        """Record that the check succeeded."""
        self._owners.discard(owner)


def process_of_peer(connection: socket.socket) -> WatchedProcess:
    """The process that opened this connection, which the caller closes; `RequestError`: it has ended, or is unknown."""
    try:
        return WatchedProcess.of_peer(connection)
    except ProcessLookupError as error:
        raise RequestError(
            Reason.NOT_PERMITTED, f"the process that opened this connection is gone: {error.strerror}"
        ) from error
    except OSError as error:
        raise identification_failed(error) from error


def identification_failed(error: OSError) -> RequestError:
    """The error for a caller that the system could not identify."""
    return RequestError(Reason.UNAVAILABLE, f"the owner of this connection can't be identified: {error}; try again")


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
