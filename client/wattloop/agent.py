"""The client's side of the node agent's socket: GPUs, energy counters, power limits held as leases.

One JSON object a line over a unix socket, a request at a time: ``{"verb": "energy", "gpus": [...]}`` is answered by
``{"result": ...}`` or ``{"error": {"reason": ..., "message": ...}}``. docs/agent.md describes every verb. The agent
knows the caller by the kernel's word (SO_PEERCRED), so nothing here carries an identity.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from wattloop.errors import CannotError, WattloopError

logger = logging.getLogger("wattloop")

SOCKET_VARIABLE = "WATTLOOP_AGENT_SOCKET"
REQUEST_LIMIT_BYTES = 64 * 1024
ANSWER_LIMIT_BYTES = 1024 * 1024
# Longer than the agent takes to replace a setter that hangs, so that the caller hears the agent's own word on it.
TIMEOUT_SECONDS = 15.0
# An agent that was killed is started again in about a second, by the kubelet or by the local mode.
PATIENCE_SECONDS = 5.0


class AgentUnavailable(CannotError):  # noqa: N818 - it is a state of the node, not a mistake of the caller
    """No agent answers at the socket: none runs, it is starting again, or it does not answer in time."""


class _Gone(AgentUnavailable):
    """The other end of an open connection is gone."""


class AgentRefused(WattloopError):  # noqa: N818 - the agent's own word
    """The agent answered, and said no. Nothing was changed on any GPU of the request.

    Attributes:
        reason: One of docs/agent.md's reasons: ``NotYours``, ``OutOfRange``, ``UnknownGpu``, ``NotPermitted``,
            ``NotSupported``, ``BadRequest``, ``Unavailable``, ….
        message: What was wrong and what would be right.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"the agent refused: {message} ({reason})")
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class PowerLimits:
    """The power limits of one GPU, in watts.

    Attributes:
        found_watts: The limit before the agent held any: what the GPU goes back to.
        current_watts: The limit set now.
        minimum_watts: The least that the device accepts.
        maximum_watts: The most that the device accepts.
        default_watts: The vendor's default.
    """

    found_watts: float
    current_watts: float
    minimum_watts: float
    maximum_watts: float
    default_watts: float


@dataclass(frozen=True)
class GpuDescription:
    """One GPU that the caller may use; ``power_limits`` is None where the device has none to set."""

    uuid: str
    name: str
    index: int
    power_limits: PowerLimits | None


@dataclass(frozen=True)
class EnergyReading:
    """The energy counter of one GPU.

    Attributes:
        uuid: The GPU.
        energy_millijoules: Cumulative: only differences of two readings mean anything.
        time_seconds: The clock that the energy was integrated on: CLOCK_BOOTTIME on real GPUs, the simulator's own
            clock on simulated ones. Again only differences mean anything.
    """

    uuid: str
    energy_millijoules: int
    time_seconds: float


@dataclass(frozen=True)
class HeldLimit:
    """A power limit that the agent holds for the caller.

    Attributes:
        uuid: The GPU.
        found_watts: What the GPU goes back to.
        held_watts: What was asked for and set.
        enforced_watts: What the device says that it enforces, read back after the change; another actor may win.
    """

    uuid: str
    found_watts: float
    held_watts: float
    enforced_watts: float


@dataclass(frozen=True)
class HeldClock:
    """A clock that the agent holds locked for the caller, at the supported step nearest to what was asked for."""

    uuid: str
    held_megahertz: float


@dataclass(frozen=True)
class LeaseDescription:
    """A setting of a GPU that the agent holds.

    Attributes:
        uuid: The GPU.
        setting: ``power_limit`` (values in watts), ``graphics_clock`` or ``memory_clock`` (in megahertz).
        found: What it goes back to; None: not locked.
        held: What is held.
        owner: Whose it is, as the agent names owners.
        yours: Whether the caller is that owner.
    """

    uuid: str
    setting: str
    found: float | None
    held: float | None
    owner: str
    yours: bool


class AgentConnection:
    """A connection to the agent of this node.

    It connects when first used. When the agent goes away, it waits for the one that comes in its place, holds with it
    again what was held with the one before, and repeats the request: every verb is idempotent. It may be shared between
    threads: one request is under way at a time.

    Args:
        path: The agent's socket; default: the environment's ``WATTLOOP_AGENT_SOCKET``.
        timeout_seconds: How long one answer may take.
        patience_seconds: How long to wait, once, for the agent that comes in place of one that is gone.

    Attributes:
        interruptions: How often the agent went away. What was held was not held for a moment each time, so a
            measurement during which this changed is none.

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
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        named = path if path is not None else os.environ.get(SOCKET_VARIABLE)
        if not named:
            raise AgentUnavailable(f"no agent: {SOCKET_VARIABLE} names no socket")
        self.path = Path(named)
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._holds: dict[tuple[str, str], Mapping[str, object]] = {}
        self._lost = False
        self._patient = True
        self.interruptions = 0
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._received = b""

    def __enter__(self) -> Self:
        """The connection itself; leaving the block closes it. Leases stay: they belong to the process, not to it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._received = b""

    def gpus(self) -> list[GpuDescription]:
        """The GPUs that the caller may use.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRefused: The agent cannot name them (no driver, say).
        """
        return [_gpu(entry) for entry in self._ask({"verb": "gpus"})]

    def energy(self, uuids: Sequence[str] | None = None) -> list[EnergyReading]:
        """The energy counters of these GPUs, read now; default: all that the caller may use.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRefused: A GPU is not the caller's, or has no counter that can be read.
        """
        request: dict[str, object] = {"verb": "energy"}
        if uuids is not None:
            request["gpus"] = list(uuids)
        return [_reading(entry) for entry in self._ask(request)]

    def hold_limit(self, uuids: Sequence[str], watts: float) -> list[HeldLimit]:
        """Hold all of these GPUs at a power limit until released, or until this process is gone. All or none.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRefused: It may not or cannot be set on one of them; none is changed.
        """
        asked = {"verb": "hold_limit", "watts": watts}
        held = self._ask({**asked, "gpus": list(uuids)})
        self._holds |= {("power", uuid): {**asked, "gpus": [uuid]} for uuid in uuids}
        return [
            HeldLimit(
                uuid=str(entry["uuid"]),
                found_watts=float(entry["found_watts"]),
                held_watts=float(entry["held_watts"]),
                enforced_watts=float(entry["enforced_watts"]),
            )
            for entry in held
        ]

    def hold_clocks(
        self, uuids: Sequence[str], megahertz: float, domain: Literal["graphics", "memory"] = "graphics"
    ) -> list[HeldClock]:
        """Hold a clock of all of these GPUs locked until released, or until this process is gone. All or none.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRefused: It may not or cannot be locked on one of them; none is changed.
        """
        asked = {"verb": "hold_clocks", "megahertz": megahertz, "domain": domain}
        held = self._ask({**asked, "gpus": list(uuids)})
        self._holds |= {(domain, uuid): {**asked, "gpus": [uuid]} for uuid in uuids}
        return [HeldClock(str(entry["uuid"]), float(entry["held_megahertz"])) for entry in held]

    def release(self, uuids: Sequence[str] | None = None) -> list[str]:
        """Give back what the caller holds on these GPUs (default: on all); returns the GPUs that were given back.

        A GPU on which the caller holds nothing is no error: releasing twice is releasing once.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRefused: A GPU could not be restored now; the agent keeps trying.
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
            AgentRefused: The agent cannot say.
        """
        return [
            LeaseDescription(
                uuid=str(entry["uuid"]),
                setting=str(entry["setting"]),
                found=entry["found"],
                held=entry["held"],
                owner=str(entry["owner"]),
                yours=bool(entry["yours"]),
            )
            for entry in self._ask({"verb": "list"})
        ]

    def subscribe(self, interval_seconds: float = 1.0) -> Iterator[list[EnergyReading]]:
        """The energy counters of all of the caller's GPUs, again and again; closing the iterator ends it.

        Uses the connection for itself until it is closed. A reading missed (a slow reader) is lost and loses nothing:
        counters are cumulative.

        Raises:
            AgentUnavailable: The agent is gone.
            AgentRefused: The interval is none that the agent offers.
        """
        with self._lock:
            try:
                self._send({"verb": "subscribe", "interval_seconds": interval_seconds})
                while True:
                    yield [_reading(entry) for entry in self._answer()]
            finally:
                self.close()

    def _ask(self, request: Mapping[str, object]) -> Any:
        with self._lock:
            if self._lost:
                self._find_again()
            try:
                return self._exchange(request)
            except _Gone:
                if not self._patient:
                    raise
            # Every verb is idempotent: ask the agent that comes in place of the one that was there.
            self._find_again()
            return self._exchange(request)

    def _find_again(self) -> None:
        """Connect to the agent that comes next, and hold with it what was held with the one that is gone."""
        self._lost = False
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                self._connected()
                for held in list(self._holds.values()):
                    self._exchange(held)
            except AgentRefused as error:
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

    def _exchange(self, request: Mapping[str, object]) -> Any:
        self._send(request)
        answer = self._answer()
        self._patient = True
        return answer

    def _send(self, request: Mapping[str, object]) -> None:
        line = json.dumps(request, allow_nan=False).encode() + b"\n"
        if len(line) > REQUEST_LIMIT_BYTES:
            raise AgentRefused("BadRequest", f"the request has {len(line)} bytes, {REQUEST_LIMIT_BYTES} at most")
        try:
            self._connected().sendall(line)
        except BrokenPipeError:
            # It has closed already, but not without a word: a refusal of the caller itself is still to be read.
            return
        except OSError as error:
            raise self._failed(error) from error

    def _connected(self) -> socket.socket:
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            opened.settimeout(self._timeout_seconds)
            try:
                opened.connect(str(self.path))
            except OSError:
                opened.close()
                raise
            self._socket = opened
        return self._socket

    def _answer(self) -> Any:
        try:
            answer = json.loads(self._line())
        except (OSError, ValueError) as error:
            raise self._failed(error) from error
        if "error" in answer:
            raise AgentRefused(str(answer["error"]["reason"]), str(answer["error"]["message"]))
        return answer["result"]

    def _line(self) -> bytes:
        connected = self._connected()
        while b"\n" not in self._received:
            if len(self._received) > ANSWER_LIMIT_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
            part = connected.recv(65536)
            if not part:
                raise ConnectionResetError("it closed the connection")
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _failed(self, error: Exception) -> AgentUnavailable:
        if self._socket is not None:
            self._lost = True
            self.interruptions += 1
        self.close()
        told = getattr(error, "strerror", None) or str(error)
        kind = _Gone if isinstance(error, ConnectionError) else AgentUnavailable
        return kind(f"{self.path}: no agent answers ({told}); is one running?")


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


def _gpu(entry: Mapping[str, Any]) -> GpuDescription:
    limits = entry["power_limits"]
    return GpuDescription(
        uuid=str(entry["uuid"]),
        name=str(entry["name"]),
        index=int(entry["index"]),
        power_limits=None if limits is None else PowerLimits(**{name: float(limits[name]) for name in _LIMITS}),
    )


_LIMITS = ("found_watts", "current_watts", "minimum_watts", "maximum_watts", "default_watts")


def _reading(entry: Mapping[str, Any]) -> EnergyReading:
    return EnergyReading(
        uuid=str(entry["uuid"]),
        energy_millijoules=int(entry["energy_millijoules"]),
        time_seconds=float(entry["time_seconds"]),
    )
