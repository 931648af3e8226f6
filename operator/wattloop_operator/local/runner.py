"""The loop of a local run: settle, wait for something to happen, settle again, until there is nothing more to come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.driver import Backend, reconcile
from wattloop_operator.reconcile.job.conditions import READY

# A clock that was set, or a laptop that slept, is noticed within this time.
MAX_SLEEP_SECONDS = 15.0
# The one reason for which nothing more starts that is no failure.
ALL_STARTED = "AllStarted"


class Runner:
    """Runs one job until all its recurrences are done.

    Args:
        backend: This machine.
        key: The job.
        happened: Set whenever something has happened, a request to end among it.
        show: Called with the state as it is found, and after each change.
        clock: The time that schedules follow.
    """

    def __init__(
        self,
        backend: Backend,
        key: JobKey,
        happened: threading.Event,
        show: Callable[[Snapshot], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._backend = backend
        self._key = key
        self._happened = happened
        self._show = show
        self._clock = clock

    def run(self) -> Snapshot:
        """Run until nothing is going on and nothing more will start.

        Raises:
            OperationError: The database failed, or no recurrence can be started any more.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        self._shown()
        while True:
            self._happened.clear()
            wake_at = reconcile(self._backend, self._key, self._clock)
            snapshot = self._shown()
            status = snapshot.job.status
            if not status.active and wake_at is None:
                self._check_done(snapshot)
                return snapshot
            self._wait(wake_at)

    def _shown(self) -> Snapshot:
        snapshot = self._backend.snapshot(self._key)
        if snapshot is None:
            raise OperationError(f"{self._key} is gone from the database")
        self._show(snapshot)
        return snapshot

    def _wait(self, wake_at: datetime | None) -> None:
        """Wait until something has happened, or that time has come by the clock."""
        interruption.raise_if_requested()
        while not self._happened.wait(self._sleep_seconds(wake_at)):
            if wake_at is not None and wake_at <= self._clock():
                return

    def _sleep_seconds(self, wake_at: datetime | None) -> float:
        if wake_at is None:
            return MAX_SLEEP_SECONDS
        return min(max((wake_at - self._clock()).total_seconds(), 0.0), MAX_SLEEP_SECONDS)

    @staticmethod
    def _check_done(snapshot: Snapshot) -> None:
        ready = next((each for each in snapshot.job.status.conditions if each.type == READY), None)
        if ready is not None and ready.status is not ConditionStatus.TRUE and ready.reason != ALL_STARTED:
            raise OperationError(f"{snapshot.job.metadata.name}: {ready.reason}: {ready.message}")
