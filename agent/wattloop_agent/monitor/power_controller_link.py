"""The monitor's connections to the power controller, with timeouts and reconnection.

On a laptop the monitor runs the power controller, and restarts it when it dies or hangs. Each link is then a socket
pair: when the monitor dies, however it dies, the power controller sees its ends close and restores every GPU.
"""

import asyncio
import contextlib
import json
import logging
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wattloop.gpus.agent import ANSWER_LIMIT_BYTES
from wattloop.interruption import EXIT_INTERRUPTED
from wattloop_agent.json_lines import encoded
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

MAX_START_SECONDS = 60.0
# Longer than changing all GPUs of a node and writing to a slow disk take; a hanging driver takes longer.
END_SECONDS = 6.0
# A power controller starts in a quarter of a second on an idle machine; a slower one gets more the next time.
START_SECONDS = 3.0
# A killed process is gone at once, unless a driver keeps it in the kernel.
MAX_KILL_SECONDS = 2.0
POLL_MILLISECONDS = 10
LINKS = ("requests", "heartbeats")


class Connector(Protocol):
    """Connects to the power controller; called from any thread.

    Attributes:
        start_seconds: Time that the power controller behind a new connection may take to start; 0:
            it runs already.
    """

    @property
    def start_seconds(self) -> float: ...  # noqa: D102 - above

    def connect(self) -> socket.socket:
        """A new connection; the power controller behind an older one is gone or hangs.

        Raises:
            OSError: The power controller is not available.
        """

    def handle_timeout(self) -> None:
        """Called after a timeout: the power controller must process no further request."""


@dataclass(frozen=True)
class SocketConnector:
    """Connects to a power controller that the kubelet or an administrator runs, and that ends itself if it hangs."""

    path: Path
    timeout_seconds: float
    start_seconds: float = 0.0

    def connect(self) -> socket.socket:
        """A new connection; `OSError`: nothing listens there, or nothing accepts it in time."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout_seconds)
        try:
            connection.connect(str(self.path))
        except OSError:
            connection.close()
            raise
        return connection

    def handle_timeout(self) -> None:
        """Do nothing."""


class PowerControllerLink:
    """Sends the requests of one event loop to the power controller, one at a time.

    Where the power controller behind a new connection has to start first, its answer may take longer: on a busy
    machine Python alone may take longer to start than an answer may take, so that a power controller killed for it
    would never start.

    Args:
        connector: Connects to it.
        timeout_seconds: Time that an answer may take; a power controller that takes longer counts as hung.

    Attributes:
        start_seconds: Time that the next start may take; it doubles after each start that was too slow.
    """

    def __init__(self, connector: Connector, timeout_seconds: float) -> None:
        self._connector = connector
        self._timeout_seconds = timeout_seconds
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._aborted = False
        self.start_seconds = connector.start_seconds

    async def request(self, request: Mapping[str, object]) -> Any:
        """The power controller's result.

        Raises:
            RequestError: From the power controller; or `Reason.UNAVAILABLE`: it is gone or hangs,
                and undoes what it had begun.
        """
        # A cancelled caller must not leave half an exchange on the connection, so the exchange goes on without it.
        task = asyncio.create_task(self._answer(encoded(request)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(task)
        if "error" in answer:
            raise RequestError(Reason(answer["error"]["reason"]), answer["error"]["message"])
        return answer["result"]

    async def _answer(self, line: bytes) -> dict[str, Any]:
        async with self._lock:
            while True:
                is_new = self._streams is None
                try:
                    return await self._exchange(line, is_new)
                except (OSError, ValueError, EOFError) as error:
                    # Repeating is safe: every verb is idempotent, and the next power controller undoes what
                    # the last one had begun.
                    if not is_new and not isinstance(error, TimeoutError):
                        continue
                    is_late = isinstance(error, TimeoutError)
                    cause = f"no answer in {self._timeout_seconds:g} s" if is_late else error
                    raise RequestError(
                        Reason.UNAVAILABLE,
                        f"the power controller, which alone may change GPUs, is unavailable ({cause}); try again",
                    ) from error

    async def _exchange(self, line: bytes, is_new: bool) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._timeout_seconds + (self.start_seconds if is_new else 0.0)):
                answer = await self._round_trip(line)
        except BaseException as error:
            # A late answer must not be taken for that of the next request.
            self.close()
            if isinstance(error, TimeoutError):
                if is_new:
                    # The next power controller may hang as this one did, or only be slow to start.
                    self.start_seconds = min(2 * self.start_seconds, MAX_START_SECONDS)
                await asyncio.to_thread(self._connector.handle_timeout)
            raise
        self.start_seconds = self._connector.start_seconds
        return answer

    async def _round_trip(self, line: bytes) -> dict[str, Any]:
        # Checked before connecting, since the connector of a laptop would start another power controller.
        if self._streams is None and not self._aborted:
            connection = await self._connect()
            self._streams = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_LIMIT_BYTES)
        if self._aborted or self._streams is None:
            raise ConnectionAbortedError("the agent ends")
        reader, writer = self._streams
        writer.write(line)
        await writer.drain()
        answer = await reader.readline()
        if not answer.endswith(b"\n"):
            raise EOFError("it closed the connection")
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    async def _connect(self) -> socket.socket:
        self._loop = asyncio.get_running_loop()
        connecting = asyncio.create_task(asyncio.to_thread(self._connector.connect))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_unused)
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                self._streams[1].close()
            self._streams = None

    def abort(self) -> None:
        """Interrupt the request in progress and refuse further ones; from any thread."""
        self._aborted = True
        if self._loop is not None:
            # RuntimeError: the loop has ended, and its requests with it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.close)


def _close_unused(connecting: asyncio.Task[socket.socket]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


class PowerControllerSupervisor:
    """Runs one power controller process, which has one connection for each of `LINKS`.

    Args:
        options: The power controller's command line after its module, without the connections.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        # By link, the connection to the current process that the link has not taken yet.
        self._connections: dict[str, socket.socket] = {}
        self._ending = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The power controller's process; None: there is none."""
        return None if self._process is None else self._process.pid

    def connection(self, link: str) -> socket.socket:
        """The next connection of a link; from any thread.

        A link that asks for a second connection to the current process reports that the process is
        gone or hangs: it is killed, and replaced by another, which restores what it held.

        Raises:
            OSError: The agent ends, or the process can't be ended or started.
        """
        with self._lock:
            if self._ending:
                raise ConnectionAbortedError("the agent ends")
            if link not in self._connections:
                self._kill_current()
                self._start()
            return self._connections.pop(link)

    def kill_hung(self, link: str) -> None:
        """Kill the process that did not answer this link, unless it was replaced meanwhile; from any thread."""
        with self._lock:
            if self._process is not None and link not in self._connections and not self._ending:
                self._process.kill()

    def end(self) -> bool:
        """Have the power controller restore every GPU and end; returns whether it did so in time.

        Where it has died or hangs, another is started whose connections are closed: it restores
        what the first one had written down, and ends.
        """
        self._ending = True
        # A link may be starting another process.
        with self._lock:
            if self._process is None:
                return True
            try:
                self._process.terminate()
                ended = _ended_cleanly(self._process)
                if not ended:
                    message = "the power controller did not end cleanly; another one restores the GPUs"
                    logger.error(message, extra={"pid": self._process.pid})
                    self._start()
                    self._close_connections()
                    ended = _ended_cleanly(self._process)
                return ended
            finally:
                self._close_connections()

    def _kill_current(self) -> None:
        if self._process is None:
            return
        logger.error("the power controller is gone or hangs; starting another", extra={"pid": self._process.pid})
        self._process.kill()
        if _exit_status(self._process, MAX_KILL_SECONDS) is None:
            raise TimeoutError(f"the power controller, process {self._process.pid}, hangs in the kernel")

    def _start(self) -> None:
        self._close_connections()
        with contextlib.ExitStack() as stack:
            inherited = []
            for link in LINKS:
                self._connections[link], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                inherited.append(stack.enter_context(end))
            descriptors = [end.fileno() for end in inherited]
            # -P: no file of the current folder is imported instead of a module.
            module = [sys.executable, "-P", "-m", "wattloop_agent.power_controller_main"]
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package; a fork takes a millisecond
                [*module, "--connection", *map(str, descriptors), *self._options],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A terminal sends Ctrl-C and its end to all its processes; only the monitor ends this one.
                start_new_session=True,
            )

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _ended_cleanly(process: subprocess.Popen[bytes]) -> bool:
    status = _exit_status(process, END_SECONDS)
    if status is None:
        process.kill()
        process.wait()
    return status in {0, EXIT_INTERRUPTED}


def _exit_status(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status; None if the process has not ended after so many seconds."""
    until = time.monotonic() + seconds
    while (status := process.poll()) is None and time.monotonic() < until:
        # Neither `time.sleep` nor `Popen.wait`, which uses it: see `LeaseTracker`.
        select.poll().poll(POLL_MILLISECONDS)
    return status


@dataclass(frozen=True)
class SupervisorConnector:
    """Connects one of `LINKS` to a supervised power controller."""

    supervisor: PowerControllerSupervisor
    link: str
    start_seconds: float = START_SECONDS

    def connect(self) -> socket.socket:
        """See `PowerControllerSupervisor.connection`."""
        return self.supervisor.connection(self.link)

    def handle_timeout(self) -> None:
        """See `PowerControllerSupervisor.kill_hung`."""
        self.supervisor.kill_hung(self.link)
