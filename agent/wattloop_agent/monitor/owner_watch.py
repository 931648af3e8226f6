"""Looks after the owners of leases in a thread of its own: what an owner that is gone holds is given back.

The thread that looks also sends the power controller's heartbeats, so a heartbeat says that somebody looks
after the owners. It
shares no event loop, no queue and no connection with the callers: none of them can keep it from its looks.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wattloop_agent.monitor.callers import Owners, no_step
from wattloop_agent.monitor.heartbeat_link import HeartbeatLink
from wattloop_agent.monitor.watched_process import LOOK_AGAIN_SECONDS, WatchedProcess
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)

# An owner that holds and releases in a loop has its leases looked at so often at most.
MIN_LOOK_SECONDS = 0.02
MAX_STOP_SECONDS = 2.0


class OwnerWatch:
    """The thread that sends heartbeats and releases what gone owners hold.

    Args:
        power controller: The thread's line to the power controller.
        owners: Finds the owners' processes.
        heartbeat_seconds: How often the power controller is asked at least.
        heard: Called in the thread at the end of each look with the power controller's answer, as its
        ``list`` verb gives it.
        silent: Called in the thread when the power controller does not answer.
        at_each_look: Called in the thread before each look.

    Attributes:
        watched: The owners with a lease that were there at the last look.
    """

    def __init__(
        self,
        power_controller: HeartbeatLink,
        owners: Owners,
        heartbeat_seconds: float,
        *,
        heard: Callable[[Mapping[str, Any]], None],
        silent: Callable[[RequestError], None],
        at_each_look: Callable[[], None] = no_step,
    ) -> None:
        self._power_controller = power_controller
        self._owners = owners
        self._heartbeat_seconds = heartbeat_seconds
        self._heard = heard
        self._silent = silent
        self._at_each_look = at_each_look
        self._processes: dict[str, WatchedProcess] = {}
        self._beat_seconds = 0.0
        self._looked_seconds = 0.0
        self._ending = False
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="owners", daemon=True)
        self.watched: frozenset[str] = frozenset()

    def start(self) -> None:
        """Look after the owners from now on."""
        self._thread.start()

    def look_now(self) -> None:
        """Look at the owners at once; from any thread."""
        # A full buffer wakes the thread as well; a closed end has no thread to wake.
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def stop(self) -> None:
        """End the thread; one that a driver or a disk holds up is left behind."""
        self._ending = True
        self._power_controller.end()
        self.look_now()
        self._thread.join(MAX_STOP_SECONDS)

    def _run(self) -> None:
        while not self._ending:
            looked = False
            self._at_each_look()
            try:
                self._look()
                looked = True
            except RequestError as refusal:
                if not self._ending:
                    self._silent(refusal)
            except Exception:
                # Without the looks that follow, nobody would give back what a dead owner holds.
                logger.exception("unexpected failure of the lease check; the next one follows")
            # The end of a process that no look has noticed yet would be noticed again and again.
            self._wait(list(self._processes.values()) if looked else [])
        self._power_controller.close()
        self._watch_only(frozenset())
        for end in (self._wake, self._woken):
            end.close()

    def _look(self) -> None:
        self._looked_seconds = time.monotonic()
        answer = self._beat()
        owners = frozenset(str(lease["owner"]) for lease in answer["leases"] if not lease["releasing"])
        self._watch_only(owners)
        self.watched = frozenset(owner for owner in owners if self._is_there(owner))
        for owner in owners - self.watched:
            logger.info("owner gone", extra={"owner": owner})
            try:
                self._power_controller.ask({"verb": "release", "owner": owner})
            except RequestError as refusal:
                words = {"owner": owner, "told": str(refusal)}
                logger.error("leases of a gone owner not released", extra=words)  # noqa: TRY400
        self._heard(answer)

    def _beat(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._power_controller.ask({"verb": "heartbeat"})
        self._beat_seconds = time.monotonic()
        return answer

    def _beat_if_due(self) -> None:
        # A node with tens of thousands of processes takes longer to look through than the power controller waits.
        if time.monotonic() - self._beat_seconds >= self._heartbeat_seconds:
            self._beat()

    def _is_there(self, owner: str) -> bool:
        watched = self._processes.get(owner)
        if watched is not None:
            if not watched.has_ended():
                return True
            self._processes.pop(owner).close()
        found = self._owners.process_of(owner, self._beat_if_due)
        if found is not None:
            self._processes[owner] = found
            return True
        return self._owners.alive(owner, self._beat_if_due)

    def _watch_only(self, owners: frozenset[str]) -> None:
        for owner in self._processes.keys() - owners:
            self._processes.pop(owner).close()

    def _wait(self, processes: Sequence[WatchedProcess]) -> None:
        """Until the next look is due: the next heartbeat's time, the end of a process, a call of `look_now`."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        due = max(self._looked_seconds, self._beat_seconds) + self._heartbeat_seconds
        for process in processes:
            if process.descriptor is None:
                due = min(due, self._looked_seconds + LOOK_AGAIN_SECONDS)
            else:
                poll.register(process.descriptor, select.POLLIN)
        poll.poll(max(due - time.monotonic(), 0.0) * 1000)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        if not self._ending:
            rest = max(self._looked_seconds + MIN_LOOK_SECONDS - time.monotonic(), 0.0)
            # Not `time.sleep`, whose deadline a preloaded libfaketime takes for one of the wall clock.
            select.poll().poll(rest * 1000)
