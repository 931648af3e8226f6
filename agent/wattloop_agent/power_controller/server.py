"""The power controller's loop: the monitor's connections, the heartbeat, the signals.

One thread handles all of them, so nothing interrupts a change. Only the request ``heartbeat``
counts as a heartbeat: the monitor's thread that watches the owners sends it. After the heartbeat
timeout nobody watches the owners any more, so the power controller restores every GPU; it keeps
running for the next monitor.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import selectors
import signal
import socket
import struct
import time

from wattloop import interruption
from wattloop_agent.json_lines import REQUEST_LIMIT_BYTES, decoded_request, encoded
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.power_controller.request_handlers import RequestHandlers
from wattloop_agent.request_error import Reason, RequestError, error_answer

logger = logging.getLogger(__name__)

# A monitor has two, and the monitor that takes its place connects before the old ones have ended.
MAX_CONNECTIONS = 8
TICK_SECONDS = 0.5


class Server:
    """Serves one holder until told to end.

    Args:
        lease_manager: The leases.
        handlers: What answers a request.
        heartbeat_timeout_seconds: How long without a heartbeat until everything is given back.
        allowed_uids: Whose connections to a listening socket are taken.
    """

    def __init__(
        self,
        lease_manager: LeaseManager,
        handlers: RequestHandlers,
        heartbeat_timeout_seconds: float,
        allowed_uids: frozenset[int],
    ) -> None:
        self._lease_manager = lease_manager
        self._handlers = handlers
        self._timeout_seconds = heartbeat_timeout_seconds
        self._allowed_uids = allowed_uids
        self._selector = selectors.DefaultSelector()
        self._received: dict[socket.socket, bytes] = {}
        self._lifelines: set[socket.socket] = set()
        self._silent_seconds = 0.0
        self._passed = time.monotonic()
        self._next_tick = time.monotonic()
        self._armed = 0.0
        self._ending: str | None = None
        self._handing_over = False
        self._ended_by_signal = False

    def adopt(self, connection: socket.socket) -> None:
        """Serve a connection of the monitor that started this power controller; it ends with the last of them."""
        self._lifelines.add(connection)
        self._add(connection)

    def listen(self, listening: socket.socket) -> None:
        """Take connections from this socket."""
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)

    def run(self) -> bool:
        """Serve until an ending signal or the end of the adopted connection; then give everything back.

        SIGUSR2 ends it too, but leaves the leases to the power controller that comes next: an
        upgrade hands over. While it gives back, further signals change nothing.

        Returns:
            Whether an ending signal ended it.
        """
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, lambda _: self._signalled(woken))
        before = signal.set_wakeup_fd(wake.fileno())
        for number in (*ending_signals(), signal.SIGUSR2):
            signal.signal(number, lambda *_: None)
        if interruption.requested():
            self._end_by("a signal that came before it served")
        try:
            while self._ending is None:
                self._pass()
        finally:
            signal.set_wakeup_fd(before)
        logger.info("power controller ends", extra={"because": self._ending, "handing_over": self._handing_over})
        if not self._handing_over:
            self._give_everything_back()
        self._lease_manager.close()
        return self._ended_by_signal

    def _pass(self) -> None:
        self._stay_awake()
        ready = self._selector.select(TICK_SECONDS)
        # Before the requests are answered: a heartbeat that came while a driver was slow is among
        # them. A machine that stood still stood still for the monitor too: one pass counts for two
        # ticks at most.
        now = time.monotonic()
        self._silent_seconds += min(now - self._passed, 2 * TICK_SECONDS)
        self._passed = now
        for key, _ in ready:
            key.data(key.fileobj)
        if now >= self._next_tick:
            self._lease_manager.tick()
            self._next_tick = now + TICK_SECONDS
        if self._silent_seconds > self._timeout_seconds:
            if self._lease_manager.leases:
                logger.error("no heartbeat of the monitor: giving everything back")
            self._give_everything_back()
            self._silent_seconds = 0.0

    def _stay_awake(self) -> None:
        """Have this process end, with a trace, when a call of the driver hangs: the next one restores what it held."""
        if self._passed >= self._armed + TICK_SECONDS:
            faulthandler.dump_traceback_later(2 * TICK_SECONDS + self._timeout_seconds, exit=True)
            self._armed = self._passed

    def _give_everything_back(self) -> None:
        try:
            self._lease_manager.release()
        except RequestError as refusal:
            logger.error("not everything could be given back", extra={"told": refusal.message})  # noqa: TRY400

    def _signalled(self, woken: socket.socket) -> None:
        numbers = woken.recv(64)
        self._handing_over = signal.SIGUSR2 in numbers
        self._end_by(", ".join(signal.Signals(number).name for number in numbers))

    def _end_by(self, signals: str) -> None:
        self._ending = signals
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
            answered = self._send(connection, answer)
            if is_heartbeat:
                self._silent_seconds = 0.0
            if not answered:
                return
        if len(rest) > REQUEST_LIMIT_BYTES:
            refusal = RequestError(Reason.BAD_REQUEST, f"a request has {REQUEST_LIMIT_BYTES} bytes at most")
            if self._send(connection, error_answer(refusal)):
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
            # Answers are far smaller than the socket's buffer: one that does not fit has a monitor
            # that takes none.
            if connection.send(data) == len(data):
                return True
        self._drop(connection)
        return False

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()
        if connection in self._lifelines:
            self._lifelines.remove(connection)
            if not self._lifelines:
                self._ending = "the monitor that started it is gone"


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, Ctrl-C, and the end of the terminal unless `nohup` has the process ignore it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
