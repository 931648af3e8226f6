"""A progress store in memory, with the optimistic concurrency of the API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from support.backends.model_backend import job
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.interfaces import BearerToken

DECIDED = decide(Snapshot(job()), Attempt(0, 0, "slot", datetime(2026, 3, 1, 13, 0, tzinfo=UTC)))


@dataclass
class MemoryProgressStore:
    """Stores one recurrence as the API server does, and has a clock."""

    now: float = 100.0
    version: int = 1
    recurrence: TrainingRecurrence | None = DECIDED
    writes: list[Progress] = field(default_factory=list)
    away: bool = False
    meanwhile: Callable[[], None] = lambda: None

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Authorizes every caller."""
        return ""

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        return True

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        if self.away:
            raise OperationError("away")
        found = self.recurrence
        return None if found is None else self._at(found, self.version)

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if self.away:
            raise OperationError("away")
        if recurrence.metadata.resource_version != str(self.version):
            raise StaleSnapshotError("changed")
        self.writes.append(progress)
        self.put(progress=progress)

    def put(self, **status: object) -> None:
        assert self.recurrence is not None
        self.version += 1
        changed = self.recurrence.status.model_copy(update=status)
        self.recurrence = self.recurrence.model_copy(update={"status": changed})

    def progress(self) -> Progress:
        assert self.recurrence is not None
        return self.recurrence.progress

    @staticmethod
    def _at(recurrence: TrainingRecurrence, version: int) -> TrainingRecurrence:
        metadata = recurrence.metadata.model_copy(update={"resource_version": str(version)})
        return recurrence.model_copy(update={"metadata": metadata})
