"""Sends the clock of each instruction to the node's agent, from a thread of its own.

The newest clock wins: one that the thread has not sent yet is replaced. So the training never waits,
and never runs ahead of a queue of old clocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from wattloop.agent import AgentConnection, AgentRequestError, AgentUnavailable

logger = logging.getLogger("wattloop")

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0


class ClockTarget(Protocol):
    """Where the clocks of instructions are sent."""

    @property
    def refusal(self) -> str:
        """Why the last clock is not held, in the agent's words; empty if none was refused."""

    def send(self, megahertz: int) -> None:
        """Hold this clock on all GPUs of the process, as soon as possible. Cheap; never waits or fails."""

    def free(self) -> None:
        """Let the GPUs run at free clocks, and forget a refusal. Cheap; never waits or fails."""


class NoClocks:
    """`ClockTarget` without GPUs or agent."""

    refusal = ""

    def send(self, megahertz: int) -> None:
        """Do nothing."""

    def free(self) -> None:
        """Do nothing."""


class ClockSender:
    """Holds the clocks of a process' GPUs.

    While no agent answers, clocks are free; the sender connects to the next one and holds the newest clock
    there. If the agent refuses a clock, the GPUs run at free clocks until `free` is called.

    Args:
        agent: A connection of its own.
        uuids: The GPUs, at least one.
        sleep: Waits between attempts to reach an agent, up to a number of seconds.
    """

    def __init__(
        self, agent: AgentConnection, uuids: Sequence[str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._agent = agent
        self._uuids = tuple(uuids)
        self._sleep = sleep
        self._changed = threading.Condition()
        self._wanted: int | None = None
        self._held: int | None = None
        self._refusal = ""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="wattloop-clocks", daemon=True)
        self._thread.start()

    @property
    def refusal(self) -> str:
        """See `ClockTarget`."""
        return self._refusal

    def send(self, megahertz: int) -> None:
        """See `ClockTarget`."""
        if megahertz != self._wanted:
            self._want(megahertz)

    def free(self) -> None:
        """See `ClockTarget`."""
        if self._wanted is not None:
            self._want(None)

    def close(self) -> None:
        """Release the clocks and end the thread. Waits a few seconds at most: the agent restores them anyway."""
        with self._changed:
            self._wanted, self._closing = None, True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    def _want(self, megahertz: int | None) -> None:
        with self._changed:
            self._wanted = megahertz
            if megahertz is None:
                self._refusal = ""
            self._changed.notify()

    def _run(self) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or (self._wanted != self._held and not self._refusal))
                wanted = self._wanted
                if self._closing and self._held is None:
                    break
            try:
                self._apply(wanted)
                retry_seconds = FIRST_RETRY_SECONDS
            except AgentRequestError as error:
                logger.warning("the clocks of this rank's instructions are free: %s", error)
                with self._changed:
                    self._held, self._refusal = None, error.message
            except AgentUnavailable as error:
                self._held = None
                if self._closing:
                    break
                logger.warning("the clocks of this rank's instructions are free: %s; trying again", error)
                self._sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, MAX_RETRY_SECONDS)
        self._agent.close()

    def _apply(self, megahertz: int | None) -> None:
        if megahertz is None:
            self._agent.release(self._uuids)
        else:
            self._agent.hold_clocks(self._uuids, megahertz)
        self._held = megahertz
