"""The seam between the engine and where it runs: a Kubernetes cluster, or this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import Action


@dataclass(frozen=True)
class JobKey:
    """Which RecurringTrainingJob."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class StaleSnapshotError(Exception):
    """An object has changed since the snapshot was taken: take another one and ask the engine again."""


class Backend(Protocol):
    """Where jobs run. Both methods block; a caller with many jobs uses threads.

    Reading follows writing: a snapshot shows every action that was carried out before it was taken.
    """

    def snapshot(self, key: JobKey) -> Snapshot | None:
        """The state of one job; None where there is no such job.

        Raises:
            OperationError: It could not be read now; trying again later may help.
        """
        ...

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        """Carry out one action of the turn that was made from this snapshot.

        Raises:
            StaleSnapshotError: The snapshot is out of date; nothing was done.
            OperationError: It could not be done now; trying again later may help.
        """
        ...
