"""A progress store in memory, with the optimistic concurrency of the store's rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from support.backends.model_backend import job
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.interfaces import BearerToken

DECIDED = decide(Snapshot(job()), Attempt(0, 0, "slot", datetime(2026, 3, 1, 13, 0, tzinfo=UTC)))


@dataclass
class MemoryProgressStore:
    """Stores the progress of one recurrence, and has a clock."""

    now: float = 100.0
    version: int = 1
    recurrence: TrainingAttempt | None = DECIDED
    writes: list[Progress] = field(default_factory=list)
    away: bool = False
    meanwhile: Callable[[], None] = lambda: None

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Authorizes every caller."""
        return ""

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        return True

    def read(self, namespace: str, name: str) -> TrainingAttempt | None:
        if self.away:
            raise OperationError("away")
        found = self.recurrence
        return None if found is None else found.model_copy(update={"progress_version": self.version})

    def write(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if self.away:
            raise OperationError("away")
        if recurrence.progress_version != self.version:
            raise StaleSnapshotError("changed")
        self.writes.append(progress)
        self.put(progress)

    def put(self, progress: Progress) -> None:
        self.version += 1
        self.recurrence = self.recurrence.model_copy(update={"progress": progress})

    def end(self, result: Result) -> None:
        self.version += 1
        ended = self.recurrence.status.model_copy(update={"result": result})
        self.recurrence = self.recurrence.model_copy(update={"status": ended})

    def progress(self) -> Progress:
        return self.recurrence.progress
