"""What the store remembers of each job, read once and kept up to date by the only writer there is: this operator."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from wattloop_operator.store import LateUsage, ObservationRecord, PowerProfileRecord, Store

MAX_JOBS = 2_000


@dataclass(frozen=True)
class Remembered:
    """What the store remembers of one job.

    Attributes:
        records: Its observations, ordered by (recurrence, attempt).
        profiles: Its power profiles.
        late_usages: Of the attempts of which agents told after their outcome.
    """

    records: tuple[ObservationRecord, ...]
    profiles: tuple[PowerProfileRecord, ...]
    late_usages: tuple[LateUsage, ...]


class StoreCache:
    """Reads of the store, kept for the jobs that were asked of last. Safe to use from several threads.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Remembered] = OrderedDict()

    def of_job(self, job_uid: str) -> Remembered:
        """What is remembered of a job.

        Raises:
            OperationError: The database failed.
        """
        with self._lock:
            known = self._known.get(job_uid)
            if known is not None:
                self._known.move_to_end(job_uid)
                return known
        read = Remembered(
            self._store.observations.of_job(job_uid),
            self._store.profiles.of_job(job_uid),
            self._store.late_usages.of_job(job_uid),
        )
        with self._lock:
            self._known[job_uid] = read
            while len(self._known) > MAX_JOBS:
                self._known.popitem(last=False)
        return read

    def learned_from(self, namespace: str, name: str) -> tuple[ObservationRecord, ...]:
        """What is remembered of the newest job that had this name.

        Raises:
            OperationError: The database failed.
        """
        records = self._store.observations.of_name(namespace, name)
        if not records:
            return ()
        newest = max(records, key=lambda record: record.finished_at).job_uid
        return tuple(record for record in records if record.job_uid == newest)

    def forget(self, job_uid: str) -> None:
        """Read it anew next time."""
        with self._lock:
            self._known.pop(job_uid, None)
