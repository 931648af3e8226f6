"""Takes the readings that metrics show, at an interval, so that a scrape never waits for the driver."""

from __future__ import annotations

import asyncio
import logging
import time

from wattloop_agent.reader.meter import GpuCondition, Meter
from wattloop_agent.refusal import Refused

logger = logging.getLogger(__name__)


class Sampler:
    """Keeps the last conditions of all GPUs.

    Args:
        meter: Reads them.
        interval_seconds: How often.

    Attributes:
        conditions: The last ones.
        taken_seconds: When, on the monotonic clock; None: never.
        problem: Why the newest reading failed; empty: it did not.
    """

    def __init__(self, meter: Meter, interval_seconds: float) -> None:
        self._meter = meter
        self._interval_seconds = interval_seconds
        self.conditions: list[GpuCondition] = []
        self.taken_seconds: float | None = None
        self.problem = ""

    async def run(self) -> None:
        """Take readings until cancelled."""
        while True:
            try:
                self.conditions = await self._meter.conditions()
                self.taken_seconds = time.monotonic()
                self._tell("")
            except Refused as refusal:
                self._tell(refusal.message)
            await asyncio.sleep(self._interval_seconds)

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            logger.log(logging.ERROR if problem else logging.INFO, "readings", extra={"problem": problem or "none"})
        self.problem = problem
