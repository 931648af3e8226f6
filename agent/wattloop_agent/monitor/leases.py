"""The monitor's view of all leases, and a thread that releases those of owners that are gone.

The same thread sends the heartbeats to the power controller, so a heartbeat implies that owners are being checked. The
thread shares no event loop, queue or connection with callers, so none of them can delay it.
"""

import asyncio
import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wattloop.threads import WatchedThread
from wattloop_agent.monitor.identity import Authenticator, no_step
from wattloop_agent.monitor.policy_limits import PolicyViolations
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.monitor.watched_process import POLL_SECONDS, WatchedProcess
from wattloop_agent.refusals import RequestError

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
# The shortest time between two checks, for owners that hold and release in a loop.
MIN_CHECK_SECONDS = 0.02
MAX_STOP_SECONDS = 2.0


@dataclass
class PowerControllerStatus:
    """The power controller's last answer.

    Attributes:
        state: ``ready``, or why it grants no lease.
        warning: A condition that an administrator should look at; empty: none.
        leases: As returned by its ``list`` verb.
        bounds: By setting, the administrator's minimum and maximum; None: the device's own.
        updated_seconds: Time of the answer on the monotonic clock; None: never.
    """

    state: str = "no answer yet"
    warning: str = ""
    leases: list[dict[str, Any]] = field(default_factory=list)
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    updated_seconds: float | None = None


class LeaseTracker:
    """Keeps the power controller's status, sends heartbeats, and releases the leases of gone owners.

    Args:
        power_controller: Carries callers' requests.
        heartbeats: Carries the heartbeats and releases of the thread.
        owners: Finds the owners' processes.
        heartbeat_seconds: The longest time between two heartbeats.
        violations: Updated with the leases at each check; None: policies are not checked.
        before_each_check: Called in the thread before each check.
        partitioned: Gives the uuids of the GPUs whose leases end because MIG is enabled on them.

    Attributes:
        status: The power controller's last answer on either link.
        watched: The owners with a lease that were alive at the last check.
    """

    def __init__(
        self,
        power_controller: PowerControllerLink,
        heartbeats: PowerControllerLink,
        owners: Authenticator,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        *,
        violations: PolicyViolations | None = None,
        before_each_check: Callable[[], None] = no_step,
        partitioned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._power_controller = power_controller
        self._heartbeats = heartbeats
        self._owners = owners
        self._heartbeat_seconds = heartbeat_seconds
        self._violations = violations
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
        self.status = PowerControllerStatus()
        self.watched: frozenset[str] = frozenset()

    def start(self) -> None:
        """Check the owners from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that is blocked by a driver or a disk is abandoned."""
        self._thread.release()
        self._stopping = True
        self._heartbeats.abort()
        self.check_now()
        self._thread.join(MAX_STOP_SECONDS)

    def check_now(self) -> None:
        """Check the owners at once; from any thread."""
        # A full buffer wakes the thread as well; a closed socket has no thread to wake.
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def watch_owner(self, owner: str) -> None:
        """Check the owners at once, unless this one is watched already; called after a hold.

        A plan moves clocks at every instruction, and must not wait for a check that would find nothing new.
        """
        if owner not in self.watched:
            self.check_now()

    async def refresh(self) -> PowerControllerStatus:
        """Request the power controller's status.

        Raises:
            RequestError: It is not available.
        """
        # Not the attribute, which a check in the thread may have replaced meanwhile by an older answer.
        return self._update(await self._power_controller.request({"verb": "list"}))

    def _update(self, answer: Mapping[str, Any]) -> PowerControllerStatus:
        if answer["state"] != self.status.state:
            logger.info("power controller state", extra={"state": answer["state"], "warning": answer["warning"]})
        status = PowerControllerStatus(
            answer["state"], answer["warning"], answer["leases"], answer["bounds"], time.monotonic()
        )
        self.status = status
        return status

    def _run(self) -> None:
        with asyncio.Runner() as self._runner:
            while not self._stopping:
                succeeded = False
                self._before_each_check()
                try:
                    self._check()
                    succeeded = True
                except RequestError as refusal:
                    if not self._stopping:
                        self._check_failed(refusal)
                except Exception:
                    # The thread must go on: without further checks, leases of dead owners would never be released.
                    logger.exception("unexpected failure of the lease check; the next one follows")
                # After a failed check, an ended process would wake the thread again at once, without end.
                self._wait(list(self._processes.values()) if succeeded else [])
            self._heartbeats.close()
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
        status = self._update(answer)
        if self._violations is not None:
            self._violations.update(status.leases)

    def _check_failed(self, refusal: RequestError) -> None:
        if self.status.state != refusal.message:
            logger.error("the power controller does not answer", extra={"error": refusal.message})
        self.status.state = refusal.message

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
            self._runner.run(self._heartbeats.request({"verb": "release", **leases}))
        except RequestError as refusal:
            logger.error("leases not released", extra={**leases, "error": str(refusal)})  # noqa: TRY400

    def _send_heartbeat(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._runner.run(self._heartbeats.request({"verb": "heartbeat"}))
        self._heartbeat_sent_seconds = time.monotonic()
        return answer

    def _send_heartbeat_if_due(self) -> None:
        # Scanning a node with tens of thousands of processes takes longer than the heartbeat timeout.
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
            # Not `time.sleep`: a preloaded libfaketime takes its deadline for one of the wall clock.
            select.poll().poll(rest * 1000)
