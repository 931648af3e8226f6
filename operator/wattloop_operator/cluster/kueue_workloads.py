"""Reads the Workload objects that Kueue makes of workloads that wait in its queues.

Only a suspended workload with the label of a queue is looked up, so a cluster without Kueue is asked nothing. Kueue may
be installed, or the right to read Workloads be given, while the operator runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError, ResourceType
from wattloop_operator.cluster.informer.stored_parts import kueue_part
from wattloop_operator.domain.snapshot import QueueWait, WorkloadState
from wattloop_operator.workloads.kueue import GROUP, JOB_UID_LABEL, created_at, in_queue, is_suspended, queue_of

Body = Mapping[str, Any]
# Interval of reads of the Workload of one that waits. Its admission resumes it, which is noticed without a read.
POLL_SECONDS = 10.0
# Kueue makes the Workload a moment after what it is made of, so the first reads follow sooner, each twice as late.
FIRST_POLL_SECONDS = 1.0
NOT_MADE = "Pending"
# With many waiting jobs the interval grows, so that the API server gets no more reads than this.
MAX_READS_PER_SECOND = 20.0
NOT_INSTALLED = (
    "it is suspended, and the cluster has no Kueue to resume it: install Kueue, or remove spec.queue and delete the "
    "TrainingRecurrence"
)
NOT_READABLE = (
    "the operator may not list Kueue's Workloads, which say why it waits: set operator.kueue to true in the values of "
    "the chart"
)


@dataclass(frozen=True)
class WorkloadRead:
    """The latest read of a Workload.

    Attributes:
        version: Resource version of what it was made of, as of the read.
        at: Time of the read on the monotonic clock.
        delay_seconds: How long after it the next read follows, unless others share the rate.
        workload: The part of the Workload that is read; None if it was not found.
        problem: What is known without it.
    """

    version: str
    at: float
    delay_seconds: float
    workload: Body | None = None
    problem: QueueWait | None = None


class KueueWorkloads:
    """The Workloads of attempts that wait.

    Args:
        api: The API server.
        monotonic: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._monotonic = monotonic
        self._resource: ResourceType | None = None
        self._reads: dict[tuple[str, str], dict[str, WorkloadRead]] = {}

    def state(self, state: WorkloadState, body: Body, recurrence: TrainingRecurrence) -> WorkloadState:
        """The state of a workload with what Kueue says of it.

        Raises:
            OperationError: The API server does not answer now, and the workload had started: how it ended is decided
                by its Workload.
        """
        waits = queue_of(body) and is_suspended(body) and state.owned and not state.phase.ended
        if not waits or recurrence.status.result is not None:
            key = _job_key(recurrence)
            self.keep(*key, self._reads.get(key, {}).keys() - {state.uid})
            return state
        started = recurrence.status.start_time or state.started_at
        read = self._current(body, recurrence, must_answer=started is not None)
        return in_queue(state, body, read.workload, first_started=recurrence.status.start_time, unknown=read.problem)

    def poll_seconds(self, namespace: str, job: str) -> float | None:
        """Delay until the Workloads of a job are read again; None if none of its attempts waits."""
        reads = self._reads.get((namespace, job))
        return None if reads is None else min(map(self._delay_seconds, reads.values()))

    def forget(self, namespace: str, job: str) -> None:
        """Drop what was read for a job."""
        self._reads.pop((namespace, job), None)

    def keep(self, namespace: str, job: str, uids: Collection[str]) -> None:
        """Drop what was read for workloads of a job that are not among these, for example as they were deleted."""
        key = (namespace, job)
        kept = {uid: read for uid, read in self._reads.get(key, {}).items() if uid in uids}
        if kept:
            self._reads[key] = kept
        else:
            self._reads.pop(key, None)

    def _current(self, body: Body, recurrence: TrainingRecurrence, *, must_answer: bool) -> WorkloadRead:
        uid, version = str(body["metadata"]["uid"]), str(body["metadata"].get("resourceVersion"))
        key, now = _job_key(recurrence), self._monotonic()
        known = self._reads.get(key, {}).get(uid)
        # A little less than the interval: the reconciliation that it asks for must read.
        if known is None or known.version != version or now - known.at >= 0.9 * self._delay_seconds(known):
            try:
                workload, problem = self._read(body, recurrence.metadata.namespace, uid)
            except OperationError as error:
                # A running attempt of the same job must not wait for a text that is only shown.
                if must_answer:
                    raise
                text = f"the operator cannot list Kueue's Workloads now, which say why it waits: {error}"
                workload, problem = None, QueueWait(queue_of(body), "NotReadable", text, created_at(body))
            known = WorkloadRead(version, now, _delay_seconds(problem, known, version), workload, problem)
            self._reads.setdefault(key, {})[uid] = known
        return known

    def _delay_seconds(self, read: WorkloadRead) -> float:
        return max(read.delay_seconds, len(self._reads) / MAX_READS_PER_SECOND)

    def _read(self, body: Body, namespace: str, uid: str) -> tuple[Body | None, QueueWait | None]:
        queue, since = queue_of(body), created_at(body)
        try:
            self._resource = self._resource or self._discovered()
            if self._resource is None:
                return None, QueueWait(queue, "NotInstalled", NOT_INSTALLED, since)
            selector = f"{JOB_UID_LABEL}={uid}"
            found, _ = self._api.list(self._resource, namespace=namespace, labels=selector, part=kueue_part)
        except NotFoundError:
            self._resource = None
            return None, QueueWait(queue, "NotInstalled", NOT_INSTALLED, since)
        except RejectedError:
            return None, QueueWait(queue, "NotReadable", NOT_READABLE, since)
        if found:
            return max(found, key=lambda each: str(each["metadata"].get("creationTimestamp"))), None
        text = (
            f"Kueue has made no Workload of it yet; if this persists, check that Kueue runs and manages the kind "
            f"{body.get('kind', 'Job')} (integrations.frameworks of its configuration)"
        )
        return None, QueueWait(queue, NOT_MADE, text, since)

    def _discovered(self) -> ResourceType | None:
        version = self._api.preferred_version(GROUP)
        return None if version is None else ResourceType(version, "workloads", "Workload")


def _delay_seconds(problem: QueueWait | None, before: WorkloadRead | None, version: str) -> float:
    """The delay after a read, by what it says of a wait without a Workload and the read before."""
    if problem is None or problem.reason != NOT_MADE:
        return POLL_SECONDS
    if before is None:
        return FIRST_POLL_SECONDS
    # A new version of the child is read at once, as often as others write it.
    return before.delay_seconds if before.version != version else min(2 * before.delay_seconds, POLL_SECONDS)


def _job_key(recurrence: TrainingRecurrence) -> tuple[str, str]:
    return recurrence.metadata.namespace, recurrence.spec.job_ref.name
