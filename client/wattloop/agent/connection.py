"""A connection to the agent: its verbs, and how it outlives the agent's death."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from wattloop.agent.answers import (
    EnergyReading,
    GpuDescription,
    HeldClock,
    HeldLimit,
    LeaseDescription,
    gpu_of,
    held_clock_of,
    held_limit_of,
    lease_of,
    reading_of,
)
from wattloop.agent.errors import AgentDisconnected, AgentRequestError, AgentUnavailable
from wattloop.agent.transport import AgentTransport

logger = logging.getLogger("wattloop")

SOCKET_VARIABLE = "WATTLOOP_AGENT_SOCKET"
# Longer than the agent takes to replace a power controller that hangs, so that the caller hears the agent's
# own word on it.
TIMEOUT_SECONDS = 15.0
# An agent that was killed is started again in about a second, by the kubelet or by the local mode.
RECONNECT_SECONDS = 5.0
# The agent's reason when it has closed the connection and answers no request over it.
CONNECTION_CLOSED = "ConnectionClosed"


class AgentConnection:
    """A connection to the agent of this node.

    It connects when first used. When the agent goes away, it waits for the one that comes in its place, holds with it
    again what was held with the one before, and repeats the request: every verb is idempotent. It may be shared between
    threads: one request is under way at a time.

    Args:
        path: The agent's socket; default: the environment's ``WATTLOOP_AGENT_SOCKET``.
        timeout_seconds: How long one answer may take.
        reconnect_seconds: How long to wait, once, for the agent that comes in place of one that is gone.

    Attributes:
        path: The agent's socket.

    Raises:
        AgentUnavailable: No path is given and the environment names none.

    Example:
        >>> try:
        ...     AgentConnection("/nowhere/agent.sock").gpus()
        ... except AgentUnavailable as error:
        ...     print(error)
        /nowhere/agent.sock: no agent answers (No such file or directory); is one running?
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        named = path if path is not None else os.environ.get(SOCKET_VARIABLE)
        if not named:
            raise AgentUnavailable(f"no agent: {SOCKET_VARIABLE} names no socket")
        self.path = Path(named)
        self._reconnect_seconds = reconnect_seconds
        self._holds: dict[tuple[str, str], Mapping[str, object]] = {}
        self._patient = True
        self._lock = threading.Lock()
        self._line = AgentTransport(self.path, timeout_seconds)

    def __enter__(self) -> Self:
        """The connection itself; leaving the block closes it. Leases stay: they belong to the process, not to it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        self._line.close()

    @property
    def interruptions(self) -> int:
        """How often the agent went away.

        What was held was not held for a moment each time, so a measurement during which this changed is none.
        """
        return self._line.interruptions

    def wait(self, seconds: float) -> None:
        """Wait until an agent listens, for so long at most; not where the socket's folder is not there: nobody comes.

        Args:
            seconds: How long.
        """
        deadline = time.monotonic() + seconds
        while self.path.parent.is_dir():
            try:
                self._line.connect()
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() >= deadline:
                    return
                # Nothing says when a path appears.
                time.sleep(0.05)
            except OSError:
                # The first request says what is wrong.
                return
            else:
                return

    def gpus(self) -> list[GpuDescription]:
        """The GPUs that the caller may use.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: The agent cannot name them (no driver, say).
        """
        return [gpu_of(entry) for entry in self._ask({"verb": "gpus"})]

    def energy(self, uuids: Sequence[str] | None = None) -> list[EnergyReading]:
        """The energy counters of these GPUs, read now; default: all that the caller may use.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: A GPU is not the caller's, or has no counter that can be read.
        """
        request: dict[str, object] = {"verb": "energy"}
        if uuids is not None:
            request["gpus"] = list(uuids)
        return [reading_of(entry) for entry in self._ask(request)]

    def hold_limit(self, uuids: Sequence[str], watts: float) -> list[HeldLimit]:
        """Hold all of these GPUs at a power limit until released, or until this process is gone. All or none.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: It may not or cannot be set on one of them; none is changed.
        """
        asked = {"verb": "hold_limit", "watts": watts}
        held = self._ask({**asked, "gpus": list(uuids)})
        self._holds |= {("power", uuid): {**asked, "gpus": [uuid]} for uuid in uuids}
        return [held_limit_of(entry) for entry in held]

    def hold_clocks(
        self, uuids: Sequence[str], megahertz: float, domain: Literal["graphics", "memory"] = "graphics"
    ) -> list[HeldClock]:
        """Hold a clock of all of these GPUs locked until released, or until this process is gone. All or none.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: It may not or cannot be locked on one of them; none is changed.
        """
        asked = {"verb": "hold_clocks", "megahertz": megahertz, "domain": domain}
        held = self._ask({**asked, "gpus": list(uuids)})
        self._holds |= {(domain, uuid): {**asked, "gpus": [uuid]} for uuid in uuids}
        return [held_clock_of(entry) for entry in held]

    def release(self, uuids: Sequence[str] | None = None) -> list[str]:
        """Give back what the caller holds on these GPUs (default: on all); returns the GPUs that were given back.

        A GPU on which the caller holds nothing is no error: releasing twice is releasing once.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: A GPU could not be restored now; the agent keeps trying.
        """
        request: dict[str, object] = {"verb": "release"}
        if uuids is not None:
            request["gpus"] = list(uuids)
        # Given up in any case: what is released must not be held again with the next agent.
        self._holds = {key: held for key, held in self._holds.items() if uuids is not None and key[1] not in uuids}
        return [str(uuid) for uuid in self._ask(request)]

    def leases(self) -> list[LeaseDescription]:
        """What the agent holds on the GPUs that the caller may use.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: The agent cannot say.
        """
        return [lease_of(entry) for entry in self._ask({"verb": "list"})]

    def subscribe(self, interval_seconds: float = 1.0) -> Iterator[list[EnergyReading]]:
        """The energy counters of all of the caller's GPUs, again and again; closing the iterator ends it.

        Uses the connection for itself until it is closed. A reading missed (a slow reader) is lost and loses nothing:
        counters are cumulative.

        Raises:
            AgentUnavailable: The agent is gone.
            AgentRequestError: The interval is none that the agent offers.
        """
        with self._lock:
            try:
                # On a connection of its own: the agent may have closed one that was idle.
                self._line.close()
                self._line.send({"verb": "subscribe", "interval_seconds": interval_seconds})
                while True:
                    yield [reading_of(entry) for entry in self._line.answer()]
            finally:
                self.close()

    def _ask(self, request: Mapping[str, object]) -> Any:
        with self._lock:
            if self._line.broke:
                self._find_again()
            try:
                return self._exchange_again_if_closed(request)
            except AgentDisconnected:
                if not self._patient:
                    raise
            # Every verb is idempotent: ask the agent that comes in place of the one that was there.
            self._find_again()
            return self._exchange(request)

    def _find_again(self) -> None:
        """Connect to the agent that comes next, and hold with it what was held with the one that is gone."""
        self._line.broke = False
        deadline = time.monotonic() + self._reconnect_seconds
        while True:
            try:
                self._line.connect()
                for held in list(self._holds.values()):
                    self._exchange(held)
            except AgentRequestError as error:
                logger.warning("not held any more, since the agent started again: %s", error)
                self._holds.clear()
                return
            except (OSError, AgentUnavailable):
                if time.monotonic() >= deadline:
                    # Not for each request again, until one comes by itself.
                    self._patient = False
                    self._holds.clear()
                    return
                # Nothing says when a path appears.
                time.sleep(0.05)
            else:
                return

    def _exchange_again_if_closed(self, request: Mapping[str, object]) -> Any:
        try:
            return self._exchange(request)
        except AgentRequestError as refused:
            if refused.reason != CONNECTION_CLOSED:
                raise
        # The agent needed the place of an idle connection: it is there, nothing of the request was done, and it holds
        # what it held.
        self._line.close()
        return self._exchange(request)

    def _exchange(self, request: Mapping[str, object]) -> Any:
        answer = self._line.exchange(request)
        self._patient = True
        return answer


def connected_agent(path: str | Path | None = None) -> AgentConnection | None:
    """A connection to this node's agent, or None where there is none: energy is then not known, and that is no error.

    Args:
        path: The agent's socket; default: the environment's ``WATTLOOP_AGENT_SOCKET``.

    Example:
        >>> connected_agent("/nowhere/agent.sock") is None
        True
    """
    try:
        connection = AgentConnection(path)
        connection.gpus()
    except AgentUnavailable:
        return None
    return connection
