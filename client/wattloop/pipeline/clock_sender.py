"""Sends the clock of each instruction to the node's agent, without waiting (docs/internals/pipeline-clocks.md).

The training thread writes to the agent's socket itself, without a lock. It says that it is about to send before it
reads whether the stream is open; the other thread closes the stream to it, and waits until it does not send, before
it uses the stream in another way.
"""

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from wattloop.gpus.agent import AgentRequestError, AgentUnavailable, ClockStream
from wattloop.threads import TaskThread

logger = logging.getLogger("wattloop")

# Longer than the agent takes to replace a hanging power controller.
TIMEOUT_SECONDS = 15.0
FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
PROBLEM_SECONDS = 10.0
# Refusals that do not depend on the clock and may be over at the next attempt.
TRANSIENT_REASONS = frozenset(
    {"Unavailable", "TooMany", "ConnectionClosed", "NoDriver", "GpuLost", "DeviceFailed", "StateNotDurable"}
)


class ClockTarget:
    """Where the clocks of instructions are sent; this one is for a process without GPUs or agent."""

    @property
    def refusal(self) -> str:
        """Why the agent holds no clock, in its words; empty if it has refused none."""
        return ""

    @property
    def is_holding(self) -> bool:
        """Whether the agent holds the clocks that are sent, as far as known."""
        return False

    @property
    def problem(self) -> str:
        """Why no agent has held the clocks for some seconds; empty if one does, or none is wanted."""
        return ""

    # How often the agent has ceased to hold the clocks by itself.
    interruptions = 0

    def request(self, megahertz: int) -> bytes:
        """The request for a clock on all GPUs of the process, for `send`; the same for the same clock."""
        return b"%d" % megahertz

    def send(self, request: bytes) -> None:
        """Hold this clock, as soon as possible. Cheap; never waits or fails."""

    def free(self) -> None:
        """Let the GPUs run at free clocks, and forget a refusal. Cheap; never waits or fails."""


class ClockSender(ClockTarget):
    """Holds the clocks of a process' GPUs; the newest clock wins.

    While no agent answers, clocks are free; the sender connects to the next one and holds the newest clock
    there. If the agent refuses a clock, the GPUs run at free clocks until `free` is called.

    Args:
        path: The agent's socket.
        uuids: The GPUs, at least one.
    """

    def __init__(self, path: Path, uuids: Sequence[str]) -> None:
        self._stream = ClockStream(path, uuids, TIMEOUT_SECONDS)
        self._lock = threading.Lock()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        for end in (self._wake_sender, self._wake_receiver):
            end.setblocking(False)
        # The newest clock; None: free clocks.
        self._wanted: bytes | None = None
        # Whether the training thread may send, and whether it does or is about to.
        self._is_open = self._is_sending = False
        # Whether the newest clock has to be sent by the thread.
        self._unsent = False
        self._refusal = ""
        self._closing = False
        self._close_deadline_seconds = 0.0
        # Whether the agent may hold a lease, also one that an agent before it held.
        self._has_lease = False
        self._warned = False
        self._failed_since_seconds: float | None = None
        self._last_failure = ""
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.interruptions = 0
        self._thread = TaskThread(self._run, "wattloop-clocks")
        self._thread.start()

    @property
    def refusal(self) -> str:
        """See `ClockTarget`."""
        return self._refusal

    @property
    def is_holding(self) -> bool:
        """See `ClockTarget`."""
        return self._is_open and not self._unsent

    @property
    def problem(self) -> str:
        """See `ClockTarget`. A restart of the agent is no problem yet."""
        since = self._failed_since_seconds
        return "" if since is None or time.monotonic() < since + PROBLEM_SECONDS else self._last_failure

    def request(self, megahertz: int) -> bytes:
        """See `ClockTarget`."""
        return self._stream.request(megahertz)

    def send(self, request: bytes) -> None:
        """See `ClockTarget`."""
        before = self._wanted
        if request is before:
            return
        self._wanted = request
        try:
            self._is_sending = True
            if self._is_open:
                self._stream.send(request)
                return
        except OSError:
            # The agent does not read, or has disconnected: the thread sends it later, or sees the end.
            self._unsent = True
        finally:
            self._is_sending = False
        if before is None or self._unsent:
            self._wake()

    def free(self) -> None:
        """See `ClockTarget`."""
        if self._wanted is None and not self._refusal:
            return
        with self._lock:
            self._wanted, self._is_open, self._refusal, self._failed_since_seconds = None, False, "", None
        self._wake()

    def close(self) -> None:
        """Release the clocks and end the thread; takes a few seconds at most, since the agent restores them anyway."""
        with self._lock:
            self._close_deadline_seconds = time.monotonic() + CLOSE_SECONDS
            self._wanted, self._is_open, self._closing = None, False, True
        self._wake()
        self._thread.join(CLOSE_SECONDS + MAX_RETRY_SECONDS)
        if self._thread.is_alive() or self._has_lease:
            logger.warning("the clocks were not released: the agent does so when this process ends")

    def _close_to_training(self) -> None:
        """Let the training thread send no more, and wait until it does not."""
        self._is_open = False
        while self._is_sending:
            time.sleep(0)

    def _open_to_training(self, sent: bytes | None) -> None:
        """Let the training thread send, and send the clocks that are newer than the one that was sent last."""
        self._unsent = False
        with self._lock:
            # It may be free again meanwhile.
            self._is_open = self._wanted is not None
        # The training thread may send at the same time. What is older than its request is followed by that again.
        while (newest := self._wanted) is not sent and newest is not None:
            try:
                self._stream.send(newest)
            except OSError:
                self._unsent = True
                return
            sent = newest

    def _wake(self) -> None:
        # A full buffer wakes the thread too; after `close` there is nothing to wake.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def _run(self) -> None:
        while not (self._closing and (not self._has_lease or time.monotonic() > self._close_deadline_seconds)):
            try:
                self._apply()
                self._wait_for_events()
            except (AgentUnavailable, AgentRequestError) as error:
                self._failed(error)
        self._stream.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def _apply(self) -> None:
        """Release the clocks, or hold the newest one if the connection is not open."""
        wanted = None if self._refusal else self._wanted
        if wanted is None and self._has_lease:
            self._stream.release()
            self._has_lease = False
        elif wanted is not None and not self._is_open:
            self._has_lease = True
            self._stream.hold(wanted)
            self._open_to_training(wanted)
            if self._warned:
                logger.warning("the agent holds the clocks of this rank's instructions again")
            self._warned, self._failed_since_seconds, self._retry_seconds = False, None, FIRST_RETRY_SECONDS

    def _wait_for_events(self) -> None:
        if self._closing:
            return
        event = self._poll(None)
        if not event:
            return
        was_open = self._is_open
        self._close_to_training()
        refusals = self._stream.refusals()
        if refusals:
            raise refusals[-1]
        if was_open:
            self._open_to_training(None)

    def _failed(self, error: AgentUnavailable | AgentRequestError) -> None:
        reason = error.reason if isinstance(error, AgentRequestError) else ""
        self._close_to_training()
        with self._lock:
            was_wanted = self._wanted is not None
            self._unsent = False
            if was_wanted:
                self.interruptions += 1
            if was_wanted and reason and reason not in TRANSIENT_REASONS:
                self._refusal = str(error)
                return
        if not was_wanted and (reason or not self._has_lease):
            # A restoration that failed is retried by the agent; an idle connection was closed.
            self._has_lease, self._failed_since_seconds = False, None
            return
        self._last_failure = str(error)
        if self._failed_since_seconds is None:
            self._failed_since_seconds = time.monotonic()
        if not self._warned:
            self._warned = True
            logger.warning("the clocks of this rank's instructions are free until an agent holds them: %s", error)
        self._poll(self._retry_seconds)
        self._retry_seconds = min(2 * self._retry_seconds, MAX_RETRY_SECONDS)

    def _poll(self, timeout_seconds: float | None) -> int:
        """Wait for an event of the stream, for a call of `_wake`, or for the timeout.

        Returns:
            The events of the stream; 0 without one.
        """
        # Not select.select, which fails in a process with 1,024 descriptors.
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        stream = self._stream.fileno()
        if stream >= 0:
            poll.register(stream, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        events = dict(poll.poll(None if timeout_seconds is None else timeout_seconds * 1e3))
        with contextlib.suppress(BlockingIOError):
            self._wake_receiver.recv(4096)
        return events.get(stream, 0)
