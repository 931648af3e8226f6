"""The monitor's view of all leases, and the releases for owners that are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattloop_agent.monitor.identity import OwnerLiveness, no_step
from wattloop_agent.monitor.owner_watch import OwnerWatch
from wattloop_agent.monitor.policy_limits import PolicyViolations
from wattloop_agent.monitor.power_controller_link import HeartbeatLink, PowerControllerLink
from wattloop_agent.refusals import RequestError

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0


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
    """Keeps the power controller's status, and has the leases of gone owners released.

    Args:
        power_controller: Carries callers' requests.
        heartbeats: Carries the heartbeats and releases of the thread that checks the owners.
        owners: Finds the owners' processes.
        heartbeat_seconds: The longest time between two heartbeats.
        violations: Updated with the leases at each check; None: policies are not checked.
        before_each_check: Called in the thread before each check.
        partitioned: See `OwnerWatch`.

    Attributes:
        status: The power controller's last answer on either link.
    """

    def __init__(
        self,
        power_controller: PowerControllerLink,
        heartbeats: HeartbeatLink,
        owners: OwnerLiveness,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        *,
        violations: PolicyViolations | None = None,
        before_each_check: Callable[[], None] = no_step,
        partitioned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._power_controller = power_controller
        self._violations = violations
        self._watch = OwnerWatch(
            heartbeats,
            owners,
            heartbeat_seconds,
            on_answer=self._heartbeat_answered,
            on_failure=self._request_failed,
            before_each_check=before_each_check,
            partitioned=partitioned,
        )
        self.status = PowerControllerStatus()

    def start(self) -> None:
        """Check the owners from now on, in a thread."""
        self._watch.start()

    def stop(self) -> None:
        """Stop checking the owners; waits for the thread."""
        self._watch.stop()

    def watch_owner(self, owner: str) -> None:
        """Check the owners at once, unless this one is watched already; called after a hold.

        A plan moves clocks at every instruction, and must not wait for a check that would find
        nothing new.
        """
        if owner not in self._watch.watched:
            self._watch.check_now()

    async def refresh(self) -> PowerControllerStatus:
        """Request the power controller's status.

        Raises:
            RequestError: It is not available.
        """
        return self._update(await self._power_controller.request({"verb": "list"}))

    def _heartbeat_answered(self, answer: Mapping[str, Any]) -> None:
        self._update(answer)
        if self._violations is not None:
            self._violations.update(self.status.leases)

    def _update(self, answer: Mapping[str, Any]) -> PowerControllerStatus:
        if answer["state"] != self.status.state:
            logger.info("power controller state", extra={"state": answer["state"], "warning": answer["warning"]})
        status = PowerControllerStatus(
            answer["state"], answer["warning"], answer["leases"], answer["bounds"], time.monotonic()
        )
        self.status = status
        return status

    def _request_failed(self, refusal: RequestError) -> None:
        if self.status.state != refusal.message:
            logger.error("the power controller does not answer", extra={"error": refusal.message})
        self.status.state = refusal.message
