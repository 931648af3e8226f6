"""Turn after turn until there is nothing to do: the one place that joins the engine to a world."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from wattloop import interruption
from wattloop_operator.engine.turn import next_turn
from wattloop_operator.loop.world import ChangedError, JobKey, World

logger = logging.getLogger(__name__)

# More turns than any sequence of events asks for: beyond it two parties undo each other's work.
MOST_TURNS = 50
BREATHER_SECONDS = 5


def settle(world: World, key: JobKey, clock: Callable[[], datetime]) -> datetime | None:
    """Take turns until the engine asks for nothing more.

    Args:
        world: Where the job runs.
        key: The job.
        clock: Gives the time, with a time zone.

    Returns:
        When to look again though nothing happens; None: only when something happens.

    Raises:
        CannotError: Something could not be done now; settling again later goes on from there.
        wattloop.interruption.Interrupted: The program was asked to end, in the main thread; no action is half done.
    """
    for _ in range(MOST_TURNS):
        snapshot = world.snapshot(key)
        if snapshot is None:
            return None
        turn = next_turn(snapshot, clock())
        if not turn.actions:
            return turn.wake_at
        try:
            for action in turn.actions:
                interruption.raise_if_requested()
                world.carry_out(snapshot, action)
        except ChangedError as change:
            logger.debug("%s: %s; looking again", key, change)
    logger.error("%s: still not settled after %d turns; looking again in %d s", key, MOST_TURNS, BREATHER_SECONDS)
    return clock() + timedelta(seconds=BREATHER_SECONDS)
