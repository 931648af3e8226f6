"""Reads why workloads wait, which no watched object has: for the quota of a queue, or for pods that are refused.

Only a suspended workload with the label of a queue is looked up, so a cluster without Kueue is asked nothing. Kueue may
be installed, or the right to read Workloads be given, while the operator runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import JOBS, ClusterApi, NotFoundError, RejectedError, ResourceType
from wattloop_operator.cluster.informer.stored_parts import kueue_part
from wattloop_operator.domain.snapshot import QueueWait, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.kueue import GROUP, JOB_UID_LABEL, created_at, in_queue, is_suspended, queue_of
from wattloop_operator.workloads.ownership import controller_uid

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


Body = Mapping[str, Any]
# Interval of reads of the Workload of one that waits. Its admission resumes it, which is noticed without a read.
POLL_SECONDS = 10.0
# Kueue makes the Workload a moment after what it is made of, so the first reads follow sooner, each twice as late.
FIRST_POLL_SECONDS = 1.0
NOT_MADE = "Pending"
NOT_INSTALLED = (
    "it is suspended, and the cluster has no Kueue to resume it: install Kueue, or remove the label "
    "kueue.x-k8s.io/queue-name from spec.template.metadata and delete the TrainingRecurrence"
)
NOT_READABLE = (
    "the operator may not list Kueue's Workloads, which say why it waits: set operator.kueue to true in the values of "
    "the chart"
)


KueueAnswer = Body | QueueWait
"""What a read says of a wait: the part of the Workload that is read, or what is known without one."""


class KueueWorkloads:
    """The Workloads of attempts that wait.

    Args:
        monotonic: Monotonic seconds.

    Attributes:
        reads: The latest reads.
    """

    def __init__(self, api: ClusterApi, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._resource: ResourceType | None = None
        self.reads: PolledReads[KueueAnswer] = PolledReads(monotonic)

    def state(self, state: WorkloadState, body: Body, recurrence: TrainingRecurrence) -> WorkloadState:
        """The state of a workload with what Kueue says of it.

        Raises:
            OperationError: The API server does not answer now, and the workload had started: how it ended is decided
                by its Workload.
        """
        waits = queue_of(body) and is_suspended(body) and state.owned and not state.phase.ended
        if not waits or recurrence.status.result is not None:
            self.reads.drop(job_name_of(recurrence), state.uid)
            return state
        started = recurrence.status.start_time or state.started_at
        answer = self._current(body, recurrence, must_answer=started is not None)
        workload, unknown = (None, answer) if isinstance(answer, QueueWait) else (answer, None)
        return in_queue(state, body, workload, first_started=recurrence.status.start_time, unknown=unknown)

    def _current(self, body: Body, recurrence: TrainingRecurrence, *, must_answer: bool) -> KueueAnswer:
        uid, version = str(body["metadata"]["uid"]), str(body["metadata"].get("resourceVersion"))
        key = job_name_of(recurrence)
        known = self.reads.get(key, uid)
        if known is not None and known.version != version:
            # A new version of the child is read soon, however often others write it.
            self.reads.hasten(key, uid, known, FIRST_POLL_SECONDS)
            known = self.reads.get(key, uid)
        if known is not None and not self.reads.is_due(known):
            return known.answer
        try:
            answer = self._read(body, recurrence.metadata.namespace, uid)
        except OperationError as error:
            # A running attempt of the same job must not wait for a text that is only shown.
            if must_answer:
                raise
            text = f"the operator cannot list Kueue's Workloads now, which say why it waits: {error}"
            answer = QueueWait(queue_of(body), "NotReadable", text, created_at(body))
        delay = POLL_SECONDS
        if isinstance(answer, QueueWait) and answer.reason == NOT_MADE:
            is_new = known is not None and known.version != version
            before = FIRST_POLL_SECONDS / 2 if known is None else known.delay_seconds
            delay = before if is_new else min(2 * before, POLL_SECONDS)
        return self.reads.put(key, uid, answer, delay, version).answer

    def _read(self, body: Body, namespace: str, uid: str) -> KueueAnswer:
        queue, since = queue_of(body), created_at(body)
        try:
            version = None if self._resource is not None else self._api.preferred_version(GROUP)
            if version is not None:
                self._resource = ResourceType(version, "workloads", "Workload")
            if self._resource is None:
                return QueueWait(queue, "NotInstalled", NOT_INSTALLED, since)
            selector = f"{JOB_UID_LABEL}={uid}"
            found, _ = self._api.list(self._resource, namespace=namespace, labels=selector, part=kueue_part)
        except NotFoundError:
            self._resource = None
            return QueueWait(queue, "NotInstalled", NOT_INSTALLED, since)
        except RejectedError:
            return QueueWait(queue, "NotReadable", NOT_READABLE, since)
        # Kueue is the owner's controller. A label alone may be anyone's.
        found = [each for each in found if controller_uid(each["metadata"]) == uid]
        if found:
            return max(found, key=lambda each: str(each["metadata"].get("creationTimestamp")))
        text = (
            f"Kueue has made no Workload of it yet; if this persists, check that Kueue runs and manages the kind "
            f"{body.get('kind', 'Job')} (integrations.frameworks of its configuration)"
        )
        return QueueWait(queue, NOT_MADE, text, since)


logger = logging.getLogger(__name__)

# The core API can select Events by their object, which is an indexed look-up.
CORE_EVENTS = ResourceType("v1", "events", "Event")
FAILED_CREATE = "FailedCreate"
# A Job has its pods within a second or two.
FIRST_READ_SECONDS = 5.0
MAX_DELAY_SECONDS = 40.0
MAX_MESSAGE_CHARACTERS = 512


class RefusedPods:
    """Why attempts lack pods: a quota, a policy of the namespace or a webhook refuses them.

    The Job controller says so in Events alone, which are many and are not watched. They are read for an attempt that
    has lacked a pod for some seconds, and then ever less often.

    Args:
        monotonic: Monotonic seconds.

    Attributes:
        reads: The latest reads: the reason, or an empty text.
    """

    def __init__(self, api: ClusterApi, monotonic: Callable[[], float]) -> None:
        self._api = api
        self.reads: PolledReads[str] = PolledReads(monotonic)

    def state(self, state: WorkloadState, recurrence: TrainingRecurrence, *, lacks_pods: bool) -> WorkloadState:
        """The state of a workload, with the reason if a pod that it lacks cannot be created."""
        job, namespace = job_name_of(recurrence), recurrence.metadata.namespace
        waits = state.owned and lacks_pods and state.phase is WorkloadPhase.PENDING and not state.suspended
        if not waits or state.queue or state.wait_reason or recurrence.status.result is not None:
            self.reads.drop(job, state.uid)
            return state
        known = self.reads.get(job, state.uid)
        if known is None:
            known = self.reads.put(job, state.uid, "", FIRST_READ_SECONDS)
        elif self.reads.is_due(known):
            delay = min(2 * known.delay_seconds, MAX_DELAY_SECONDS)
            known = self.reads.put(job, state.uid, self._read(namespace, state, known.answer), delay)
        if not known.answer:
            return state
        return replace(state, wait_reason=FAILED_CREATE, message=f"a pod of it cannot be created: {known.answer}")

    def _read(self, namespace: str, state: WorkloadState, before: str) -> str:
        """The message of the latest Event that says so; empty without one, and as before if none can be read now."""
        of_job = f",involvedObject.uid={state.uid}" if state.kind == JOBS.kind else ""
        fields = f"reason={FAILED_CREATE},involvedObject.kind={JOBS.kind}{of_job}"
        try:
            page = next(self._api.pages(CORE_EVENTS, namespace=namespace, fields=fields))
        except (OperationError, NotFoundError, RejectedError) as error:
            logger.warning("%s/%s lacks pods, and its Events cannot be read: %s", namespace, state.name, error)
            return before
        # Workloads of other kinds, such as JobSets, make Jobs whose names begin with theirs.
        events, prefix = page.get("items") or (), f"{state.name}-"
        found = [each for each in events if of_job or str(each["involvedObject"].get("name")).startswith(prefix)]
        latest = max(found, key=_time, default=None)
        return "" if latest is None else printable(str(latest.get("message") or FAILED_CREATE), MAX_MESSAGE_CHARACTERS)


def _time(event: Mapping[str, Any]) -> str:
    return str((event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or "")
