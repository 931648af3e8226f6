"""Looks after the owners of leases: what no one owns any more is given back. Its asking is the setter's heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from wattloop_agent.reader.callers import Callers
from wattloop_agent.reader.held_outside import HeldOutside
from wattloop_agent.reader.setter_link import SetterLink
from wattloop_agent.refusal import Refused

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0


@dataclass
class SetterView:
    """What the setter last said.

    Attributes:
        state: ``ready``, or why no lease is given out.
        warning: What a person should look at; empty: nothing.
        leases: As its ``list`` verb gives them.
        bounds: By setting, the lowest and the highest that the setter itself allows; None: the device's own.
        heard_seconds: On the monotonic clock; None: never.
    """

    state: str = "not heard of yet"
    warning: str = ""
    leases: list[dict[str, Any]] = field(default_factory=list)
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    heard_seconds: float | None = None


class LeaseKeeper:
    """The reader's side of all leases.

    Args:
        setter: The line to the setter.
        heartbeat_seconds: How often it is asked at least.
        outside: Told of the leases at each look; None: nobody watches the policies.
    """

    def __init__(
        self, setter: SetterLink, heartbeat_seconds: float = HEARTBEAT_SECONDS, outside: HeldOutside | None = None
    ) -> None:
        self._setter = setter
        self._heartbeat_seconds = heartbeat_seconds
        self._outside = outside
        self._look = asyncio.Event()
        self._watched: frozenset[str] = frozenset()
        self.view = SetterView()

    def look_now(self) -> None:
        """Look at the owners at once: one of them may be gone."""
        self._look.set()

    def held_for(self, owner: str) -> None:
        """A lease was made or changed for this owner: have it watched at once, unless it is.

        A plan moves clocks at every instruction: it must not wait behind a look that would find nothing new.
        """
        if owner not in self._watched:
            self.look_now()

    async def run(self, callers: Callers) -> None:
        """Look after the owners, until cancelled."""
        while True:
            self._look.clear()
            try:
                await self.refresh()
                if self._outside is not None:
                    self._outside.look(self.view.leases)
                await self._release_orphans(callers)
            except Refused as refusal:
                if self.view.state != refusal.message:
                    logger.error("no word from the setter", extra={"told": refusal.message})  # noqa: TRY400
                self.view.state = refusal.message
            except Exception:
                # Without the looks that follow, nobody would give back what a dead owner holds.
                logger.exception("a look at the leases failed in a way that nobody foresaw; the next one comes")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._look.wait()

    async def refresh(self) -> SetterView:
        """Ask the setter what it holds.

        Raises:
            Refused: It is not there.
        """
        told = await self._setter.ask({"verb": "list"})
        if told["state"] != self.view.state:
            logger.info("setter", extra={"state": told["state"], "warning": told["warning"]})
        self.view = SetterView(told["state"], told["warning"], told["leases"], told["bounds"], time.monotonic())
        return self.view

    async def _release_orphans(self, callers: Callers) -> None:
        owners = {str(lease["owner"]) for lease in self.view.leases if not lease["releasing"]}
        self._watched = frozenset(owner for owner in owners if callers.alive(owner))
        for owner in owners:
            if owner in self._watched:
                callers.watch(owner)
                continue
            logger.info("owner gone", extra={"owner": owner})
            try:
                await self._setter.ask({"verb": "release", "owner": owner})
            except Refused as refusal:
                logger.error("orphan not released", extra={"owner": owner, "told": str(refusal)})  # noqa: TRY400
