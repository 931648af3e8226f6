"""A connection to the agent: its verbs, and its recovery from a restart of the agent."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent.answers import (
    GpuDescription,
    HeldClock,
    HeldLimit,
    LeaseDescription,
    StreamedReadings,
    answer_of,
    reading_of,
    streamed_readings_of,
)
from wattloop.gpus.agent.socket_transport import AgentDisconnected, AgentRequestError, AgentTransport, AgentUnavailable

logger = logging.getLogger("wattloop")

Streamed = TypeVar("Streamed")
Setting = Literal["power_limit", "graphics_clock", "memory_clock"]

SOCKET_VARIABLE = "WATTLOOP_AGENT_SOCKET"
# Longer than the agent takes to replace a hanging power controller, so that the caller receives the
# agent's own error.
TIMEOUT_SECONDS = 15.0
# The kubelet and the local mode restart a killed agent in about a second.
RECONNECT_SECONDS = 5.0
# The agent's reason if it closed the connection before it read the request.
CONNECTION_CLOSED = "ConnectionClosed"


class AgentConnection:
    """A connection to the agent of this node.

    It connects on first use. If the agent disconnects, the connection waits for its successor, holds
    there all settings held before, and repeats the request; every verb is idempotent. Threads may share
    the connection, which sends one request at a time.

    Each verb raises `AgentUnavailable` if no agent answers, and `AgentRequestError` if the agent refuses it, such as
    for a GPU that is not the caller's or a limit that the GPU does not allow; then nothing is changed. A GPU that
    cannot be restored now is restored later.

    Args:
        path: The agent's socket; default: the environment's ``WATTLOOP_AGENT_SOCKET``.
        timeout_seconds: Timeout of one answer.
        reconnect_seconds: How long to wait, once, for the successor of an agent that disconnected.

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
        self._held_settings: dict[tuple[str, str], Mapping[str, object]] = {}
        self._may_reconnect = True
        self._lock = threading.Lock()
        self._transport = AgentTransport(self.path, timeout_seconds)

    def __enter__(self) -> Self:
        """The connection itself; the end of the block closes it. Leases remain: they belong to the process."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        self._transport.close()

    @property
    def interruptions(self) -> int:
        """Number of times that the agent disconnected.

        Settings are not held for a moment each time, so discard a measurement during which this changes.
        """
        return self._transport.interruptions

    def wait(self, seconds: float) -> None:
        """Wait until an agent listens, unless the socket's folder is missing."""
        deadline = time.monotonic() + seconds
        while self.path.parent.is_dir():
            try:
                self._transport.connect()
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() >= deadline:
                    return
                # There is no notification of a new path.
                time.sleep(0.05)
            except OSError:
                # The first request raises the error.
                return
            else:
                return

    def gpus(self) -> list[GpuDescription]:
        """The GPUs that the caller may use."""
        return [answer_of(GpuDescription, entry) for entry in self._request({"verb": "gpus"})]

    def energy(self, uuids: Sequence[str] | None = None) -> list[GpuReading]:
        """The energy counters of these GPUs, read now; default: all GPUs that the caller may use."""
        request: dict[str, object] = {"verb": "energy"}
        if uuids is not None:
            request["gpus"] = list(uuids)
        return [reading_of(entry) for entry in self._request(request)]

    def hold_limit(self, uuids: Sequence[str], watts: float) -> list[HeldLimit]:
        """Hold all of these GPUs at a power limit until released or until this process ends. All or none."""
        setting = {"verb": "hold_limit", "watts": watts}
        held = self._request({**setting, "gpus": list(uuids)})
        self._held_settings |= {("power_limit", uuid): {**setting, "gpus": [uuid]} for uuid in uuids}
        return [answer_of(HeldLimit, entry) for entry in held]

    def hold_clocks(
        self, uuids: Sequence[str], megahertz: float, domain: Literal["graphics", "memory"] = "graphics"
    ) -> list[HeldClock]:
        """Lock a clock of all of these GPUs until released or until this process ends. All or none."""
        setting = {"verb": "hold_clocks", "megahertz": megahertz, "domain": domain}
        held = self._request({**setting, "gpus": list(uuids)})
        self._held_settings |= {(f"{domain}_clock", uuid): {**setting, "gpus": [uuid]} for uuid in uuids}
        return [answer_of(HeldClock, entry) for entry in held]

    def release(self, uuids: Sequence[str] | None = None, setting: Setting | None = None) -> list[str]:
        """Release the caller's leases on these GPUs and of this setting (default: all); returns the GPUs released.

        A GPU without a lease of the caller is ignored, so a second release does nothing.
        """
        request: dict[str, object] = {"verb": "release"}
        if uuids is not None:
            request["gpus"] = list(uuids)
        if setting is not None:
            request["setting"] = setting
        # Also on failure: a released setting must not be held again after a restart of the agent.
        self._held_settings = {
            (held, uuid): request_of
            for (held, uuid), request_of in self._held_settings.items()
            if (uuids is not None and uuid not in uuids) or (setting is not None and held != setting)
        }
        return [str(uuid) for uuid in self._request(request)]

    def leases(self) -> list[LeaseDescription]:
        """The agent's leases on the GPUs that the caller may use."""
        return [answer_of(LeaseDescription, entry) for entry in self._request({"verb": "list"})]

    def subscribe(self, interval_seconds: float = 1.0) -> Iterator[list[GpuReading]]:
        """The energy counters of all of the caller's GPUs, at an interval, until the iterator is closed.

        Reserves the connection until then. A slow reader misses readings, which loses no energy because
        counters are cumulative.
        """
        return self._subscribed(
            {"interval_seconds": interval_seconds}, lambda result: [reading_of(entry) for entry in result]
        )

    def stream(self, interval_seconds: float, uuids: Sequence[str] = ()) -> Iterator[StreamedReadings]:
        """The same of these GPUs (default: all of the caller's), with the energy of the processors and memory."""
        request: dict[str, object] = {"interval_seconds": interval_seconds, "processors": True}
        if uuids:
            request["gpus"] = list(uuids)
        return self._subscribed(request, streamed_readings_of)

    def _subscribed(self, request: Mapping[str, object], parse: Callable[[Any], Streamed]) -> Iterator[Streamed]:
        with self._lock:
            try:
                # Reconnects first, because the agent may have closed an idle connection.
                self._transport.close()
                self._transport.send({"verb": "subscribe", **request})
                while True:
                    yield parse(self._transport.answer())
            finally:
                self.close()

    def _request(self, request: Mapping[str, object]) -> Any:
        with self._lock:
            if self._transport.failed:
                self._reconnect()
            try:
                return self._exchange_with_retry(request)
            except AgentDisconnected:
                if not self._may_reconnect:
                    raise
            # Repeats the request at the next agent; every verb is idempotent.
            self._reconnect()
            return self._exchange(request)

    def _reconnect(self) -> None:
        """Connect to the next agent, and hold the same settings there."""
        self._transport.failed = False
        deadline = time.monotonic() + self._reconnect_seconds
        while True:
            try:
                self._transport.connect()
                for setting in list(self._held_settings.values()):
                    self._exchange(setting)
            except AgentRequestError as error:
                logger.warning("settings are no longer held after a restart of the agent: %s", error)
                self._held_settings.clear()
                return
            except (OSError, AgentUnavailable):
                if time.monotonic() >= deadline:
                    # Later requests do not wait, until one succeeds.
                    self._may_reconnect = False
                    self._held_settings.clear()
                    return
                # There is no notification of a new path.
                time.sleep(0.05)
            else:
                return

    def _exchange_with_retry(self, request: Mapping[str, object]) -> Any:
        try:
            return self._exchange(request)
        except AgentRequestError as error:
            if error.reason != CONNECTION_CLOSED:
                raise
        # The agent closed an idle connection to make room. It did not execute the request, and still holds
        # its leases.
        self._transport.close()
        return self._exchange(request)

    def _exchange(self, request: Mapping[str, object]) -> Any:
        self._transport.send(request)
        answer = self._transport.answer()
        self._may_reconnect = True
        return answer
