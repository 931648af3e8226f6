"""Turn after turn until there is nothing to do: the one place that joins the engine to a world."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from wattloop import interruption
from wattloop_operator.reconcile.reconcile import next_actions
from wattloop_operator.reconciler.backend import Backend, JobKey, StaleSnapshotError

logger = logging.getLogger(__name__)

# More turns than any sequence of events asks for: beyond it two parties undo each other's work.
MAX_TURNS = 50
BREATHER_SECONDS = 5


def reconcile(backend: Backend, key: JobKey, clock: Callable[[], datetime]) -> datetime | None:
    """Take turns until the engine asks for nothing more.

    Args:
        backend: Where the job runs.
        key: The job.
        clock: Gives the time, with a time zone.

    Returns:
        When to look again though nothing happens; None: only when something happens.

    Raises:
        OperationError: Something could not be done now; settling again later goes on from there.
        wattloop.interruption.Interrupted: The program was asked to end, in the main thread; no action is half done.
    """
    for _ in range(MAX_TURNS):
        snapshot = backend.snapshot(key)
        if snapshot is None:
            return None
        result = next_actions(snapshot, clock())
        if not result.actions:
            return result.wake_at
        try:
            for action in result.actions:
                interruption.raise_if_requested()
                backend.carry_out(snapshot, action)
        except StaleSnapshotError as change:
            logger.debug("%s: %s; looking again", key, change)
    logger.error("%s: still not settled after %d turns; looking again in %d s", key, MAX_TURNS, BREATHER_SECONDS)
    return clock() + timedelta(seconds=BREATHER_SECONDS)
