"""The latest reads about workloads that wait, whose reason no watched object has: by job, and at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from wattloop_operator.api.training_recurrence import TrainingRecurrence

# With many waiting workloads the interval grows, so that the API server gets no more reads than this.
MAX_READS_PER_SECOND = 20.0

JobName = tuple[str, str]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Read(Generic[Answer]):
    """A read about a workload.

    Attributes:
        answer: What was read.
        version: Resource version of the workload, as of the read.
        at: Time of the read on the monotonic clock.
        delay_seconds: How long after it the next read follows, unless others share the rate.
    """

    answer: Answer
    version: str
    at: float
    delay_seconds: float


class PolledReads(Generic[Answer]):
    """The latest read about each workload that waits.

    Args:
        monotonic: Monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._reads: dict[JobName, dict[str, Read[Answer]]] = {}

    def get(self, job: JobName, uid: str) -> Read[Answer] | None:
        """The latest read about a workload; None if there was none."""
        return self._reads.get(job, {}).get(uid)

    def hasten(self, job: JobName, uid: str, read: Read[Answer], delay_seconds: float) -> None:
        """Let the next read about a workload follow sooner."""
        self._reads[job][uid] = replace(read, delay_seconds=min(read.delay_seconds, delay_seconds))

    def is_due(self, read: Read[Answer]) -> bool:
        """Whether another read may follow now."""
        # A little less than the interval: the reconciliation that it asks for must read.
        return self._monotonic() - read.at >= 0.9 * self._delay_seconds(read)

    def put(self, job: JobName, uid: str, answer: Answer, delay_seconds: float, version: str = "") -> Read[Answer]:
        """Keep a read that was made now."""
        read = Read(answer, version, self._monotonic(), delay_seconds)
        self._reads.setdefault(job, {})[uid] = read
        return read

    def poll_seconds(self, job: JobName) -> float | None:
        """Delay until something is read again for a job; None if none of its attempts waits."""
        reads = self._reads.get(job)
        return None if reads is None else min(map(self._delay_seconds, reads.values()))

    def drop(self, job: JobName, uid: str) -> None:
        """Drop what was read about one workload."""
        self.keep(job, self._reads.get(job, {}).keys() - {uid})

    def keep(self, job: JobName, uids: Collection[str]) -> None:
        """Drop what was read for workloads of a job that are not among these, for example as they were deleted."""
        kept = {uid: read for uid, read in self._reads.get(job, {}).items() if uid in uids}
        if kept:
            self._reads[job] = kept
        else:
            self._reads.pop(job, None)

    def _delay_seconds(self, read: Read[Answer]) -> float:
        return max(read.delay_seconds, len(self._reads) / MAX_READS_PER_SECOND)


def job_name_of(recurrence: TrainingRecurrence) -> JobName:
    """Namespace and name of the job of an attempt."""
    return recurrence.metadata.namespace, recurrence.spec.job_ref.name
