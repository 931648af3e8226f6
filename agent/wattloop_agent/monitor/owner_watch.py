"""A thread that checks whether owners are alive, and releases the leases of gone ones.

The same thread sends the heartbeats to the power controller, so a heartbeat implies that owners are
being checked. The thread shares no event loop, queue or connection with callers, so none of them
can delay it.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wattloop.threads import WatchedThread
from wattloop_agent.monitor.identity import OwnerLiveness, no_step
from wattloop_agent.monitor.power_controller_link import HeartbeatLink
from wattloop_agent.monitor.watched_process import POLL_SECONDS, WatchedProcess
from wattloop_agent.refusals import RequestError

logger = logging.getLogger(__name__)

# The shortest time between two checks, for owners that hold and release in a loop.
MIN_CHECK_SECONDS = 0.02
MAX_STOP_SECONDS = 2.0


class OwnerWatch:
    """The thread that sends heartbeats and releases the leases of gone owners.

    Args:
        power_controller: The thread's link to the power controller.
        owners: Finds the owners' processes.
        heartbeat_seconds: The longest time between two heartbeats.
        on_answer: Called in the thread at the end of each check with the power controller's answer,
            which has the form of its ``list`` verb's.
        on_failure: Called in the thread when the power controller does not answer.
        before_each_check: Called in the thread before each check.
        partitioned: Gives the uuids of the GPUs whose leases end because MIG is enabled on them.

    Attributes:
        watched: The owners with a lease that were alive at the last check.
    """

    def __init__(
        self,
        power_controller: HeartbeatLink,
        owners: OwnerLiveness,
        heartbeat_seconds: float,
        *,
        on_answer: Callable[[Mapping[str, Any]], None],
        on_failure: Callable[[RequestError], None],
        before_each_check: Callable[[], None] = no_step,
        partitioned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._power_controller = power_controller
        self._owners = owners
        self._heartbeat_seconds = heartbeat_seconds
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._before_each_check = before_each_check
        self._partitioned = partitioned
        self._processes: dict[str, WatchedProcess] = {}
        self._heartbeat_sent_seconds = 0.0
        self._checked_seconds = 0.0
        self._stopping = False
        self._wake_sender, self._wake_receiver = socket.socketpair()
        for end in (self._wake_sender, self._wake_receiver):
            end.setblocking(False)
        self._thread = WatchedThread(self._run, "owners")
        self.watched: frozenset[str] = frozenset()

    def start(self) -> None:
        """Check the owners from now on."""
        self._thread.start()

    def check_now(self) -> None:
        """Check the owners at once; from any thread."""
        # A full buffer wakes the thread as well; a closed socket has no thread to wake.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def stop(self) -> None:
        """End the thread; one that is blocked by a driver or a disk is abandoned."""
        self._thread.release()
        self._stopping = True
        self._power_controller.abort()
        self.check_now()
        self._thread.join(MAX_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            succeeded = False
            self._before_each_check()
            try:
                self._check()
                succeeded = True
            except RequestError as refusal:
                if not self._stopping:
                    self._on_failure(refusal)
            except Exception:
                # The thread must go on: without further checks, leases of dead owners would never
                # be released.
                logger.exception("unexpected failure of the lease check; the next one follows")
            # After a failed check, an ended process would wake the thread again at once, without
            # end.
            self._wait(list(self._processes.values()) if succeeded else [])
        self._power_controller.close()
        self._watch_only(frozenset())
        for end in (self._wake_sender, self._wake_receiver):
            end.close()

    def _check(self) -> None:
        self._checked_seconds = time.monotonic()
        answer = self._send_heartbeat()
        owners = frozenset(str(lease["owner"]) for lease in answer["leases"] if not lease["releasing"])
        self._watch_only(owners)
        self.watched = frozenset(owner for owner in owners if self._is_alive(owner))
        for owner in owners - self.watched:
            logger.info("owner gone", extra={"owner": owner})
            self._release({"owner": owner})
        if partitioned := self._partitioned():
            self._release_partitioned(answer["leases"], partitioned)
        self._on_answer(answer)

    def _release_partitioned(self, leases: Sequence[Mapping[str, Any]], partitioned: frozenset[str]) -> None:
        held = {
            (str(lease["owner"]), str(lease["uuid"]))
            for lease in leases
            if lease["uuid"] in partitioned and not lease["releasing"]
        }
        for owner, gpu in sorted(held):
            logger.warning("lease ends: MIG was enabled on its GPU", extra={"gpu": gpu, "owner": owner})
            self._release({"owner": owner, "gpus": [gpu]})

    def _release(self, leases: Mapping[str, Any]) -> None:
        try:
            self._power_controller.request({"verb": "release", **leases})
        except RequestError as refusal:
            logger.error("leases not released", extra={**leases, "error": str(refusal)})  # noqa: TRY400

    def _send_heartbeat(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._power_controller.request({"verb": "heartbeat"})
        self._heartbeat_sent_seconds = time.monotonic()
        return answer

    def _send_heartbeat_if_due(self) -> None:
        # Scanning a node with tens of thousands of processes takes longer than the heartbeat
        # timeout.
        if time.monotonic() - self._heartbeat_sent_seconds >= self._heartbeat_seconds:
            self._send_heartbeat()

    def _is_alive(self, owner: str) -> bool:
        watched = self._processes.get(owner)
        if watched is not None:
            if not watched.has_ended():
                return True
            self._processes.pop(owner).close()
        found = self._owners.process_of(owner, self._send_heartbeat_if_due)
        if found is not None:
            self._processes[owner] = found
            return True
        return self._owners.alive(owner, self._send_heartbeat_if_due)

    def _watch_only(self, owners: frozenset[str]) -> None:
        for owner in self._processes.keys() - owners:
            self._processes.pop(owner).close()

    def _wait(self, processes: Sequence[WatchedProcess]) -> None:
        """Wait until a heartbeat is due, a process ends, or `check_now` is called."""
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        due = max(self._checked_seconds, self._heartbeat_sent_seconds) + self._heartbeat_seconds
        for process in processes:
            if process.descriptor is None:
                due = min(due, self._checked_seconds + POLL_SECONDS)
            else:
                poll.register(process.descriptor, select.POLLIN)
        poll.poll(max(due - time.monotonic(), 0.0) * 1000)
        with contextlib.suppress(BlockingIOError):
            self._wake_receiver.recv(4096)
        if not self._stopping:
            rest = max(self._checked_seconds + MIN_CHECK_SECONDS - time.monotonic(), 0.0)
            # Not `time.sleep`: a preloaded libfaketime takes its deadline for one of the wall
            # clock.
            select.poll().poll(rest * 1000)
