"""What the power controller holds, as it last said; and the watch over the owners of what it holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattloop_agent.monitor.callers import Owners, no_step
from wattloop_agent.monitor.heartbeat_link import HeartbeatLink
from wattloop_agent.monitor.owner_watch import OwnerWatch
from wattloop_agent.monitor.policies.violations import PolicyViolations
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0


@dataclass
class PowerControllerView:
    """What the power controller last said.

    Attributes:
        state: ``ready``, or why no lease is given out.
        warning: What a person should look at; empty: nothing.
        leases: As its ``list`` verb gives them.
        bounds: By setting, the lowest and the highest that the power controller itself allows; None: the device's own.
        heard_seconds: On the monotonic clock; None: never.
    """

    state: str = "not heard of yet"
    warning: str = ""
    leases: list[dict[str, Any]] = field(default_factory=list)
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    heard_seconds: float | None = None


class LeaseMonitor:
    """The monitor's side of all leases.

    Args:
        power controller: The callers' line to the power controller.
        heartbeats: The line to the power controller of the thread that looks after the owners.
        owners: Finds the owners' processes.
        heartbeat_seconds: How often the power controller is asked at least.
        outside: Told of the leases at each look; None: nobody watches the policies.
        at_each_look: Called in the thread before each look.

    Attributes:
        view: What the power controller last said, to either line.
    """

    def __init__(
        self,
        power_controller: PowerControllerLink,
        heartbeats: HeartbeatLink,
        owners: Owners,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        *,
        outside: PolicyViolations | None = None,
        at_each_look: Callable[[], None] = no_step,
    ) -> None:
        self._power_controller = power_controller
        self._outside = outside
        self._watch = OwnerWatch(
            heartbeats,
            owners,
            heartbeat_seconds,
            heard=self._heartbeat_answered,
            silent=self._no_answer,
            at_each_look=at_each_look,
        )
        self.view = PowerControllerView()

    def start(self) -> None:
        """Look after the owners from now on, in a thread."""
        self._watch.start()

    def stop(self) -> None:
        """Look after the owners no more; waits for the thread."""
        self._watch.stop()

    def held_for(self, owner: str) -> None:
        """A lease was made or changed for this owner: have it watched at once, unless it is.

        A plan moves clocks at every instruction: it must not wait behind a look that would find nothing new.
        """
        if owner not in self._watch.watched:
            self._watch.look_now()

    async def refresh(self) -> PowerControllerView:
        """Ask the power controller what it holds.

        Raises:
            RequestError: It is not there.
        """
        return self._heard(await self._power_controller.ask({"verb": "list"}))

    def _heartbeat_answered(self, told: Mapping[str, Any]) -> None:
        self._heard(told)
        if self._outside is not None:
            self._outside.look(self.view.leases)

    def _heard(self, told: Mapping[str, Any]) -> PowerControllerView:
        if told["state"] != self.view.state:
            logger.info("power-controller", extra={"state": told["state"], "warning": told["warning"]})
        view = PowerControllerView(told["state"], told["warning"], told["leases"], told["bounds"], time.monotonic())
        self.view = view
        return view

    def _no_answer(self, refusal: RequestError) -> None:
        if self.view.state != refusal.message:
            logger.error("the power controller does not answer", extra={"told": refusal.message})
        self.view.state = refusal.message
