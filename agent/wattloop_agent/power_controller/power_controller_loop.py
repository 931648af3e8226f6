"""The power controller's event loop: the monitor's connections, requests and heartbeats, and signals.

One thread handles them all, so nothing interrupts a change. Only the ``heartbeat`` request counts as a heartbeat; the
monitor's thread that checks the owners sends it. Without one for the heartbeat timeout, owners are no longer checked,
so the power controller restores every GPU; it keeps running for the next monitor.
"""

import contextlib
import faulthandler
import logging
import math
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping

from wattloop import interruption
from wattloop_agent.gpu_setting import CLOCKS, AllowedRange, GpuSetting
from wattloop_agent.json_lines import (
    REQUEST_LIMIT_BYTES,
    decoded_request,
    encoded,
    gpus_in_request,
    number,
    request_too_long,
    string,
)
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import HeldLease, LeaseManager
from wattloop_agent.refusals import Reason, RequestError, error_answer

logger = logging.getLogger(__name__)

# A monitor has two, and its successor connects before the old ones have ended.
MAX_CONNECTIONS = 8
TICK_SECONDS = 0.5
NAMES = ("hold_limit", "hold_clocks", "release", "list", "heartbeat")
SETTINGS = {setting.value: setting for setting in GpuSetting}


class PowerControllerVerbs:
    """Answers the monitor's requests; the clock is CLOCK_BOOTTIME, in seconds."""

    def __init__(self, lease_manager: LeaseManager, clock: Callable[[], float]) -> None:
        self._lease_manager = lease_manager
        self._clock = clock

    def answer(self, request: Mapping[str, object]) -> object:
        """The result of one request; `RequestError` has the reason of a refusal."""
        match request["verb"]:
            case "hold_limit":
                return self._hold(request, GpuSetting.POWER_LIMIT, number(request, "watts"))
            case "hold_clocks":
                return self._hold(request, _clock_setting(request), number(request, "megahertz"))
            case "release":
                owner = string(request, "owner") if "owner" in request else None
                gpus = gpus_in_request(request) if "gpus" in request else None
                released = self._lease_manager.release(owner, gpus, _released_setting(request))
                return [{"uuid": gpu, "setting": setting} for gpu, setting in released]
            case "list" | "heartbeat":
                return self._list()
            case verb:
                raise RequestError(Reason.BAD_REQUEST, f"unknown verb {verb!r:.60}; there are {', '.join(NAMES)}")

    def _hold(self, request: Mapping[str, object], setting: GpuSetting, value: float) -> list[dict[str, object]]:
        expires = None
        if request.get("for_seconds") is not None:
            seconds = number(request, "for_seconds")
            if seconds <= 0:
                raise RequestError(Reason.BAD_REQUEST, f'found "for_seconds" {seconds:g}, expected a positive number')
            expires = self._clock() + seconds
        hold = HoldRequest(
            gpus_in_request(request), setting, value, string(request, "owner"), expires, _within(request)
        )
        return [_record(held) for held in self._lease_manager.hold(hold)]

    def _list(self) -> dict[str, object]:
        return {
            "state": self._lease_manager.state,
            "warning": self._lease_manager.warning,
            "bounds": {setting: _bounds(bounds) for setting, bounds in self._lease_manager.bounds.items()},
            "leases": [
                {
                    "uuid": lease.gpu,
                    "setting": lease.setting,
                    "found": lease.found,
                    "held": lease.held,
                    "owner": lease.owner,
                    "releasing": lease.releasing,
                }
                for lease in self._lease_manager.leases.values()
            ],
        }


def _clock_setting(request: Mapping[str, object]) -> GpuSetting:
    domain = request.get("domain", "graphics")
    if not isinstance(domain, str) or domain not in CLOCKS:
        raise RequestError(Reason.BAD_REQUEST, f'found "domain" {domain!r:.60}, expected "graphics" or "memory"')
    return CLOCKS[domain]


def _released_setting(request: Mapping[str, object]) -> GpuSetting | None:
    if request.get("setting") is None:
        return None
    name = string(request, "setting")
    if name not in SETTINGS:
        expected = ", ".join(SETTINGS)
        raise RequestError(Reason.BAD_REQUEST, f'found "setting" {name!r:.60}, expected one of {expected}')
    return SETTINGS[name]


def _within(request: Mapping[str, object]) -> AllowedRange | None:
    minimum, maximum = (None if request.get(name) is None else number(request, name) for name in ("minimum", "maximum"))
    if minimum is None and maximum is None:
        return None
    return AllowedRange(-math.inf if minimum is None else minimum, math.inf if maximum is None else maximum)


def _bounds(bounds: AllowedRange) -> list[float | None]:
    """The minimum and the maximum; None: the device's own."""
    return [bound if math.isfinite(bound) else None for bound in (bounds.minimum, bounds.maximum)]


def _record(held: HeldLease) -> dict[str, object]:
    lease = held.lease
    return {"uuid": lease.gpu, "found": lease.found, "held": lease.held, "enforced": held.enforced}


class PowerControllerLoop:
    """Serves the monitor until it is asked to end.

    Args:
        lease_manager: The leases.
        handlers: Answer requests.
        heartbeat_timeout_seconds: The time without a heartbeat after which every GPU is restored.
        allowed_uids: The users that may connect to the listening socket.
    """

    def __init__(
        self,
        lease_manager: LeaseManager,
        handlers: PowerControllerVerbs,
        heartbeat_timeout_seconds: float,
        allowed_uids: frozenset[int],
    ) -> None:
        self._lease_manager = lease_manager
        self._handlers = handlers
        self._timeout_seconds = heartbeat_timeout_seconds
        self._allowed_uids = allowed_uids
        self._selector = selectors.DefaultSelector()
        self._received: dict[socket.socket, bytes] = {}
        self._adopted: set[socket.socket] = set()
        self._unheard_seconds = 0.0
        self._last_pass_seconds = time.monotonic()
        self._next_tick_seconds = time.monotonic()
        self._armed_seconds = 0.0
        self._ending: str | None = None
        self._handing_over = False
        self._ended_by_signal = False

    def adopt(self, connection: socket.socket) -> None:
        """Serve a connection of the parent monitor; it ends when the last one closes."""
        self._adopted.add(connection)
        self._add(connection)

    def listen(self, listening: socket.socket) -> None:
        """Accept connections from a listening socket."""
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)

    def run(self) -> bool:
        """Serve until an ending signal or the end of the monitor, then restore every GPU.

        SIGUSR2 ends it too, but leaves the leases to the next power controller, as for an upgrade.
        Further signals are ignored while it restores. Returns whether an ending signal ended it.
        """
        wake_sender, wake_receiver = socket.socketpair()
        for end in (wake_sender, wake_receiver):
            end.setblocking(False)
        self._selector.register(wake_receiver, selectors.EVENT_READ, lambda _: self._receive_signals(wake_receiver))
        before = signal.set_wakeup_fd(wake_sender.fileno())
        for each in (*ending_signals(), signal.SIGUSR2):
            signal.signal(each, lambda *_: None)
        if interruption.requested():
            self._end_by("a signal before it served")
        try:
            while self._ending is None:
                self._run_once()
        finally:
            signal.set_wakeup_fd(before)
        logger.info("power controller ends", extra={"reason": self._ending, "handing_over": self._handing_over})
        if not self._handing_over:
            self._restore_all()
        self._lease_manager.close()
        return self._ended_by_signal

    def _run_once(self) -> None:
        self._rearm_watchdog()
        ready = self._selector.select(TICK_SECONDS)
        # Counted before the requests are answered, since a heartbeat that arrived during a slow driver call is among
        # them. Suspending the machine suspends the monitor too, so one pass counts for two ticks at most.
        now = time.monotonic()
        self._unheard_seconds += min(now - self._last_pass_seconds, 2 * TICK_SECONDS)
        self._last_pass_seconds = now
        for key, _ in ready:
            key.data(key.fileobj)
        if now >= self._next_tick_seconds:
            self._lease_manager.tick()
            self._next_tick_seconds = now + TICK_SECONDS
        if self._unheard_seconds > self._timeout_seconds:
            if self._lease_manager.leases:
                logger.error("no heartbeat from the monitor; restoring every GPU")
            self._restore_all()
            self._unheard_seconds = 0.0

    def _rearm_watchdog(self) -> None:
        """End this process with a stack trace if a driver call hangs; the next one restores the GPUs."""
        if self._last_pass_seconds >= self._armed_seconds + TICK_SECONDS:
            faulthandler.dump_traceback_later(2 * TICK_SECONDS + self._timeout_seconds, exit=True)
            self._armed_seconds = self._last_pass_seconds

    def _restore_all(self) -> None:
        try:
            self._lease_manager.release()
        except RequestError as refusal:
            logger.error("not every GPU could be restored", extra={"error": refusal.message})  # noqa: TRY400

    def _receive_signals(self, wake_receiver: socket.socket) -> None:
        numbers = wake_receiver.recv(64)
        self._handing_over = signal.SIGUSR2 in numbers
        self._end_by(", ".join(signal.Signals(each).name for each in numbers))

    def _end_by(self, reason: str) -> None:
        self._ending = reason
        self._ended_by_signal = not self._handing_over

    def _accept(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        uid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in self._allowed_uids or len(self._received) >= MAX_CONNECTIONS:
            logger.warning("connection refused", extra={"uid": uid, "connections": len(self._received)})
            connection.close()
        else:
            self._add(connection)

    def _add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._received[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            part = connection.recv(REQUEST_LIMIT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._drop(connection)
            return
        *lines, rest = (self._received[connection] + part).split(b"\n")
        self._received[connection] = rest
        for line in lines:
            answer, is_heartbeat = self._answer(line)
            was_sent = self._send(connection, answer)
            if is_heartbeat:
                self._unheard_seconds = 0.0
            if not was_sent:
                return
        if len(rest) > REQUEST_LIMIT_BYTES and self._send(connection, error_answer(request_too_long())):
            self._drop(connection)

    def _answer(self, line: bytes) -> tuple[dict[str, object], bool]:
        try:
            request = decoded_request(line)
            return {"result": self._handlers.answer(request)}, request["verb"] == "heartbeat"
        except RequestError as refusal:
            return error_answer(refusal), False

    def _send(self, connection: socket.socket, answer: dict[str, object]) -> bool:
        data = encoded(answer)
        with contextlib.suppress(OSError):
            # Answers are far smaller than the socket's buffer, so one that does not fit has a
            # monitor that does not read.
            if connection.send(data) == len(data):
                return True
        self._drop(connection)
        return False

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()
        if connection in self._adopted:
            self._adopted.remove(connection)
            if not self._adopted:
                self._ending = "the monitor that started it is gone"


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, Ctrl-C, and the end of the terminal unless `nohup` has the process ignore it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
