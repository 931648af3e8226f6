"""The loop of a local run: reconcile and wait, until nothing is active and nothing more is due."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from wattloop import interruption, threads
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.driver import Backend, reconcile
from wattloop_operator.local.run_clock import now
from wattloop_operator.reconcile.job.job_conditions import READY
from wattloop_operator.reconcile.job.start import ALL_STARTED, MISTAKE

# A change of the clock, the end of a suspend, or that of a thread is noticed within this time.
MAX_SLEEP_SECONDS = 5.0
# Reasons for Ready to be False although everything that was to start has started.
DONE_REASONS = frozenset({ALL_STARTED, *Result})
# Reasons with which a job waits for its user to correct a mistake.
MISTAKES = {
    Result.START_FAILED.value: "the training fails at its start",
    Result.SCRIPT_ERROR.value: "the training's script has an error",
    Result.MISSING_METRIC.value: "the training reports nothing",
}


class Runner:
    """Runs one job until all its recurrences are done.

    Args:
        backend: This machine.
        key: The job.
        wake_event: Set when a process has ended, a report has arrived, or the program is asked to
            end.
        show: Called with the state at the start and after each change.
        clock: Returns the time, with a time zone.
    """

    def __init__(
        self,
        backend: Backend,
        key: JobKey,
        wake_event: threading.Event,
        show: Callable[[Snapshot], None],
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._backend = backend
        self._key = key
        self._wake_event = wake_event
        self._show = show
        self._clock = clock

    def run(self) -> Snapshot:
        """Run until nothing is active and nothing more will start.

        Raises:
            OperationError: The database failed, or no further recurrence can start.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        self._show_snapshot()
        while True:
            self._wake_event.clear()
            wake_at = reconcile(self._backend, self._key, self._clock)
            snapshot = self._show_snapshot()
            status = snapshot.job.status
            if not status.active and (wake_at is None or _mistake(snapshot)):
                self._check_done(snapshot)
                return snapshot
            self._wait(wake_at)

    def _show_snapshot(self) -> Snapshot:
        snapshot = self._backend.snapshot(self._key)
        if snapshot is None:
            raise OperationError(f"{self._key} no longer exists in the database")
        self._show(snapshot)
        return snapshot

    def _wait(self, wake_at: datetime | None) -> None:
        """Wait until the wake event is set, or the clock has reached this time."""
        interruption.raise_if_requested()
        while not self._wake_event.wait(self._sleep_seconds(wake_at)):
            if problem := threads.problem():
                raise OperationError(f"{problem}; the same command continues the run")
            if wake_at is not None and wake_at <= self._clock():
                return

    def _sleep_seconds(self, wake_at: datetime | None) -> float:
        if wake_at is None:
            return MAX_SLEEP_SECONDS
        return min(max((wake_at - self._clock()).total_seconds(), 0.0), MAX_SLEEP_SECONDS)

    @staticmethod
    def _check_done(snapshot: Snapshot) -> None:
        mistake = _mistake(snapshot)
        if mistake:
            text = f"{mistake} (see above); fix it, then run the same command again"
            raise OperationError(f"{snapshot.job.metadata.name}: {text}")
        ready = _ready(snapshot)
        if ready is not None and ready.status is not ConditionStatus.TRUE and ready.reason not in DONE_REASONS:
            raise OperationError(f"{snapshot.job.metadata.name}: {ready.reason}: {ready.message}")


def _ready(snapshot: Snapshot) -> Condition | None:
    return next((each for each in snapshot.job.status.conditions if each.type == READY), None)


def _mistake(snapshot: Snapshot) -> str:
    """The mistake after which the job waits, empty for none: on this machine its user corrects it meanwhile."""
    ready = _ready(snapshot)
    if ready is None or ready.status is not ConditionStatus.FALSE or not ready.message.startswith(MISTAKE):
        return ""
    return MISTAKES.get(ready.reason, "")
