"""Looks again and again at who has which GPU, reads the processors' energy, has the ledger written down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from wattloop_agent.monitor.energy.attribution import Assignment, Observation
from wattloop_agent.monitor.energy.ledger_writer import LedgerWriter
from wattloop_agent.monitor.energy.rapl import Rapl
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0


class Assignments(Protocol):
    """The seam to who has which GPU."""

    async def observe(self, known: Iterable[Assignment]) -> Observation:
        """Who has which GPU now, and who had which until now.

        Raises:
            RequestError: It is not known.
        """


class EnergyRecorder:
    """Keeps the node's ledger up to date.

    Args:
        books: The ledger and its file.
        assignments: Who has which GPU; None: on this machine nobody is given any, so there are no usages.
        changed: Called when a GPU has changed hands, before the ledger reckons with it.

    Attributes:
        rapl: Energy of processors and memory.
        problem: Why it is not known who has what; empty: it is.
    """

    def __init__(
        self, books: LedgerWriter, assignments: Assignments | None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._books = books
        self._assignments = assignments
        self._changed = changed
        self.rapl = Rapl()
        self.problem = ""

    async def run(self) -> None:
        """Do so until cancelled."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # Else the loop has ended, and the ledger is written as it is closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(due.set)

        self._books.due = wake
        while True:
            due.clear()
            try:
                if self._assignments is not None:
                    await self._observe(self._assignments)
                await asyncio.to_thread(self._read_and_write)
            except Exception as error:
                # Accounting that has ended unseen would be worse than one look that is lost.
                logger.exception("a look at who has which GPU failed in a way that nobody foresaw; the next one comes")
                self.problem = f"{type(error).__name__}: {error}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await due.wait()

    def _read_and_write(self) -> None:
        self.rapl.read()
        self._books.keep()

    async def _observe(self, assignments: Assignments) -> None:
        ledger = self._books.ledger
        try:
            assigned = ledger.assigned()
            observation = await assignments.observe(assigned)
            if {each.key for each in observation.assignments} != {each.key for each in assigned}:
                self._changed()
            ledger.observe(observation)
            self._tell("")
        except RequestError as refusal:
            self._tell(refusal.message)

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            level = logging.ERROR if problem else logging.INFO
            logger.log(level, "who has which GPU", extra={"problem": problem or "none"})
        self.problem = problem
