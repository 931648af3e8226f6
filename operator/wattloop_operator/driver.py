"""Connects the pure decisions of `reconcile` to a backend.

The driver reads a snapshot, computes the actions that are due, and carries them out, until none is
due.

The operator, the local mode and the tests use the same driver with different backends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import Action, CreateRecurrence, ReconcileResult, StartWorkload
from wattloop_operator.reconcile.next_actions import next_actions

logger = logging.getLogger(__name__)

# No sequence of events needs this many rounds. Beyond it, two writers undo each other's changes.
MAX_ROUNDS = 50
RETRY_SECONDS = 5


class StaleSnapshotError(Exception):
    """An object has changed since the snapshot was taken.

    Take a new snapshot and compute the actions again.
    """


class Backend(Protocol):
    """Where jobs run: a Kubernetes cluster or this machine.

    Both methods block. A caller with many jobs uses threads. Each snapshot shows every action that
    was carried out before it was taken, a start too whose workload somebody has deleted since.
    """

    def snapshot(self, key: JobKey) -> Snapshot | None:
        """The state of one job; None if there is no such job.

        Raises:
            OperationError: The state cannot be read now. A later call may succeed.
        """
        ...

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        """Carry out one action that was computed from this snapshot.

        Raises:
            StaleSnapshotError: The snapshot is out of date. Nothing was changed.
            OperationError: The action cannot be carried out now. A later call may succeed.
        """
        ...


def reconcile(
    backend: Backend, key: JobKey, clock: Callable[[], datetime], others_wait: Callable[[], bool] = lambda: False
) -> datetime | None:
    """Carry out actions until none are due.

    Args:
        backend: Where the job runs.
        key: The job.
        clock: Returns the time, with a time zone.
        others_wait: Whether other jobs wait for this call to end. What follows a start, and after a change what only
            informs users, is left to another call then, so that a thousand starts do not wait for each other's statuses
            and Events.

    Returns:
        When to reconcile again if no event comes earlier; None if only an event makes anything due.

    Raises:
        OperationError: An action failed. A later call continues from there.
        wattloop.interruption.Interrupted: The program was asked to end, in the main thread. Every
            action is either complete or not begun.
    """
    for completed_rounds in range(MAX_ROUNDS):
        snapshot = backend.snapshot(key)
        if snapshot is None:
            return None
        now = clock()
        result = next_actions(snapshot, now)
        if not result.actions:
            return result.wake_at
        # Only the status keeps the slot of a deleted recurrence from a second run by the next operator.
        may_wait = completed_rounds and not snapshot.deleted_recurrences
        if may_wait and result.actions == result.informing and others_wait():
            return clock()
        try:
            for action in result.actions:
                interruption.raise_if_requested()
                try:
                    backend.carry_out(snapshot, action)
                except OperationError:
                    if isinstance(action, CreateRecurrence | StartWorkload) or not result.informing:
                        _inform_of_failed_start(backend, snapshot, now)
                    raise
        except StaleSnapshotError as change:
            logger.debug("%s: %s; reading a new snapshot", key, change)
        else:
            if _has_started(result) and not snapshot.deleted_recurrences and others_wait():
                return clock()
    logger.error("%s: actions remain after %d rounds; retrying in %d s", key, MAX_ROUNDS, RETRY_SECONDS)
    return clock() + timedelta(seconds=RETRY_SECONDS)


def _has_started(carried_out: ReconcileResult) -> bool:
    return any(isinstance(each, StartWorkload) for each in carried_out.actions)


def _inform_of_failed_start(backend: Backend, snapshot: Snapshot, now: datetime) -> None:
    """Write the status that waits for a start. The start may fail for hours.

    A failure is dropped, because the error of the start is raised and the next call informs again.
    """
    with contextlib.suppress(StaleSnapshotError, OperationError):
        for action in next_actions(snapshot, now, start_fails=True).informing:
            backend.carry_out(snapshot, action)
