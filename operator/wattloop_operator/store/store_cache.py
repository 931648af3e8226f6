"""The stored records of each job, read once: this operator, or this local run, is their only writer."""

import sys
import threading
from dataclasses import dataclass, replace

from cachetools import LRUCache

from wattloop_operator.domain.records import LateUsage, ObservationRecord, PowerProfileRecord
from wattloop_operator.memory_shares import RECORDS
from wattloop_operator.reconcile.actions import RecordLateUsage, RecordObservation, RecordProfile
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
from wattloop_operator.reconcile.pipeline.plan_status import with_iterations
from wattloop_operator.store.store import Store

# Measured with tracemalloc: a record without long texts and without a curve takes 2.0 kB, and values derived from it.
BYTES_OF_RECORD, BYTES_OF_CURVE_POINT = 3_000, 100
BYTES_OF_PROFILE, BYTES_OF_MEASUREMENT, BYTES_OF_LATE_USAGE = 1_500, 200, 1_000


@dataclass(frozen=True)
class JobRecords:
    """The stored records of one job.

    Attributes:
        records: Its observations, ordered by (recurrence, attempt).
        profiles: Its power profiles.
        late_usages: Usages that agents reported after the outcomes of their attempts.
    """

    records: tuple[ObservationRecord, ...]
    profiles: tuple[PowerProfileRecord, ...]
    late_usages: tuple[LateUsage, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that they take, as measured."""
        return (
            sum(map(_record_bytes, self.records))
            + sum(BYTES_OF_PROFILE + BYTES_OF_MEASUREMENT * len(each.measurements) for each in self.profiles)
            + BYTES_OF_LATE_USAGE * len(self.late_usages)
        )


@dataclass(frozen=True)
class _RecordedJobs:
    """The uids of the jobs that have records of a kind, or had some."""

    observations: set[str]
    profiles: set[str]
    late_usages: set[str]


class StoreCache:
    """The records of the most recently used jobs. Thread-safe.

    An operator that starts asks for each job, and most jobs have no records of some kind. So the jobs that have records
    are read once, in one query of each table, and only those are asked for.

    Args:
        store: The store.
        max_bytes: Bytes of memory that they may take together; a job with more is remembered alone.
    """

    def __init__(self, store: Store, max_bytes: int = RECORDS) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._jobs: LRUCache[str, JobRecords] = LRUCache(max_bytes, lambda each: min(each.size_bytes, max_bytes))
        self._recorded: _RecordedJobs | None = None

    def of_job(self, job_uid: str) -> JobRecords:
        """The records of a job."""
        with self._lock:
            known, recorded = self._jobs.get(job_uid), self._recorded_jobs()
        if known is not None:
            return known
        read = JobRecords(
            self._store.observations.of_job(job_uid) if job_uid in recorded.observations else (),
            self._store.profiles.of_job(job_uid) if job_uid in recorded.profiles else (),
            self._store.late_usages.of_job(job_uid) if job_uid in recorded.late_usages else (),
        )
        with self._lock:
            self._jobs[job_uid] = read
        return read

    def record(self, action: RecordObservation | RecordLateUsage | RecordProfile) -> None:
        """Store what an action records, durably when this returns."""
        with self._lock:
            recorded = self._recorded_jobs()
        match action:
            case RecordObservation(record):
                record = self._with_pipeline(record)
                recorded.observations.add(record.job_uid)
                if self._store.observations.record(record):
                    self.add(record)
                else:
                    # The store has the attempt already, perhaps with other values.
                    self.invalidate(record.job_uid)
            case RecordLateUsage(late_usage):
                recorded.late_usages.add(late_usage.job_uid)
                self._store.late_usages.record(late_usage)
                self.invalidate(late_usage.job_uid)
            case RecordProfile(profile):
                recorded.profiles.add(profile.key.job_uid)
                self._store.profiles.record(profile.key, profile.measurements)
                self.invalidate(profile.key.job_uid)

    def _with_pipeline(self, record: ObservationRecord) -> ObservationRecord:
        """The record of an attempt with what its pipeline planned and realised, which its object does not have."""
        if record.pipeline is None:
            return record
        key = PipelineKey(record.job_uid, record.recurrence, record.attempt)
        state = self._store.pipelines.read_without_measurements(key)
        if state is None or not state.ranks:
            return record
        return replace(record, pipeline=with_iterations(record.pipeline, state))

    def add(self, record: ObservationRecord) -> None:
        """Add a record that was stored just now: the others are not read again."""
        with self._lock:
            known = self._jobs.get(record.job_uid)
            if known is not None:
                # Another thread may have read it from the store already.
                attempts = {(each.recurrence, each.attempt): each for each in (record, *known.records)}
                records = tuple(attempts[key] for key in sorted(attempts))
                self._jobs[record.job_uid] = replace(known, records=records)

    def source_records(self, namespace: str, name: str) -> tuple[ObservationRecord, ...]:
        """The observations of the newest job that had this name."""
        records = self._store.observations.of_name(namespace, name)
        if not records:
            return ()
        newest = max(records, key=lambda record: record.finished_at).job_uid
        return tuple(record for record in records if record.job_uid == newest)

    def invalidate(self, job_uid: str) -> None:
        """Read the records of a job from the store the next time."""
        with self._lock:
            self._jobs.pop(job_uid, None)

    def _recorded_jobs(self) -> _RecordedJobs:
        if self._recorded is None:
            stores = (self._store.observations, self._store.profiles, self._store.late_usages)
            self._recorded = _RecordedJobs(*(each.job_uids() for each in stores))
        return self._recorded


def _record_bytes(record: ObservationRecord) -> int:
    texts = (record.reason, record.recurrence_name, *(text for pair in record.parameters for text in pair))
    points = 0 if record.curve is None else len(record.curve.epochs)
    return BYTES_OF_RECORD + sum(map(sys.getsizeof, texts)) + BYTES_OF_CURVE_POINT * points
