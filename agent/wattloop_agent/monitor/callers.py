"""The seam of identity: who calls, and whether an owner still is there.

A caller is known by what the kernel says of its socket, never by what it says of itself. On a laptop an owner is a
process (`processes`); on a node it is a pod.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wattloop_agent.monitor.watched_process import WatchedProcess
from wattloop_agent.request_error import Reason, RequestError


@dataclass(frozen=True)
class Caller:
    """Who is at the other end of a connection.

    Attributes:
        owner: The name that its leases are held under; no two owners of one boot share one.
        gpus: The GPUs that are its own, by uuid; None: every GPU of the machine.
        shared: The GPUs that it has together with others: it may see them, not set them.
        namespace: Of the pod that it is; None: it is none.
    """

    owner: str
    gpus: frozenset[str] | None
    shared: frozenset[str] = frozenset()
    namespace: str | None = None

    @property
    def has_gpus(self) -> bool:
        """Whether any GPU is its own, or one that it shares."""
        return self.gpus is None or bool(self.gpus or self.shared)

    def sees(self, gpu: str) -> bool:
        """Whether it may know of this GPU."""
        return self.gpus is None or gpu in self.gpus or gpu in self.shared

    def require_seen(self, gpus: tuple[str, ...]) -> None:
        """Refuse a GPU that is not the caller's to see.

        Raises:
            RequestError: `Reason.NOT_YOURS`.
        """
        foreign = [gpu for gpu in gpus if not self.sees(gpu)]
        if foreign:
            yours = ", ".join(sorted((self.gpus or frozenset()) | self.shared)) or "none"
            raise RequestError(
                Reason.NOT_YOURS, f"GPU {', '.join(foreign)}: not given to {self.owner}; its own are: {yours}"
            )

    def require_own(self, gpus: tuple[str, ...]) -> None:
        """Refuse a GPU that is not the caller's to set.

        Raises:
            RequestError: `Reason.NOT_YOURS`, or `Reason.SHARED` where others have it too.
        """
        self.require_seen(gpus)
        shared = [gpu for gpu in gpus if gpu in self.shared]
        if shared:
            raise RequestError(
                Reason.SHARED,
                f"GPU {', '.join(shared)}: shared by time slicing or MIG, so a limit would be its other users' too; "
                "ask for a whole GPU",
            )


class Peer(Protocol):
    """One connection's other end; asked anew at every request, since a process may end or move while it is open."""

    @property
    def owner(self) -> str:
        """The name of its owner, as of the moment at which it connected."""

    async def caller(self) -> Caller:
        """Who it is now.

        Raises:
            RequestError: It is nobody any more, or nobody who may call.
        """

    def close(self) -> None:
        """Forget it."""


def no_step() -> None:
    """Nothing is done between two processes."""


class Callers(Protocol):
    """Identifies connections."""

    def peer(self, connection: socket.socket) -> Peer:
        """Who is at the other end of this accepted connection.

        Raises:
            RequestError: `Reason.NOT_PERMITTED`: nobody who may call.
        """


class Owners(Protocol):
    """Says whether owners still are there. Called from one thread, which is not the event loop's.

    Both methods call `step` now and then while they look through the node's processes.
    """

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        """Whether this owner, named perhaps by an earlier agent, still is there. In doubt: yes."""

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        """A process of this owner, for the caller to close; None: none is found, or the owner is of another kind."""
