"""Reads the Workload objects that Kueue makes of workloads that wait in its queues.

Only a suspended workload with the label of a queue is looked up, so a cluster without Kueue is asked nothing. Kueue may
be installed, or the right to read Workloads be given, while the operator runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError, ResourceType
from wattloop_operator.cluster.informer.stored_parts import kueue_part
from wattloop_operator.cluster.polled_reads import PolledReads, Read, job_name_of
from wattloop_operator.domain.snapshot import QueueWait, WorkloadState
from wattloop_operator.workloads.kueue import GROUP, JOB_UID_LABEL, created_at, in_queue, is_suspended, queue_of
from wattloop_operator.workloads.ownership import controller_uid

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


@dataclass(frozen=True)
class KueueAnswer:
    """What a read says of a wait.

    Attributes:
        workload: The part of the Workload that is read; None if it was not found.
        problem: What is known without it.
    """

    workload: Body | None = None
    problem: QueueWait | None = None


class KueueWorkloads:
    """The Workloads of attempts that wait.

    Args:
        api: The API server.
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
        read = self._current(body, recurrence, must_answer=started is not None)
        return in_queue(state, body, read.workload, first_started=recurrence.status.start_time, unknown=read.problem)

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
            answer = KueueAnswer(problem=QueueWait(queue_of(body), "NotReadable", text, created_at(body)))
        return self.reads.put(key, uid, answer, _delay_seconds(answer.problem, known, version), version).answer

    def _read(self, body: Body, namespace: str, uid: str) -> KueueAnswer:
        queue, since = queue_of(body), created_at(body)
        try:
            self._resource = self._resource or self._discovered()
            if self._resource is None:
                return KueueAnswer(problem=QueueWait(queue, "NotInstalled", NOT_INSTALLED, since))
            selector = f"{JOB_UID_LABEL}={uid}"
            found, _ = self._api.list(self._resource, namespace=namespace, labels=selector, part=kueue_part)
        except NotFoundError:
            self._resource = None
            return KueueAnswer(problem=QueueWait(queue, "NotInstalled", NOT_INSTALLED, since))
        except RejectedError:
            return KueueAnswer(problem=QueueWait(queue, "NotReadable", NOT_READABLE, since))
        # Kueue is the owner's controller. A label alone may be anyone's.
        found = [each for each in found if controller_uid(each["metadata"]) == uid]
        if found:
            return KueueAnswer(max(found, key=lambda each: str(each["metadata"].get("creationTimestamp"))))
        text = (
            f"Kueue has made no Workload of it yet; if this persists, check that Kueue runs and manages the kind "
            f"{body.get('kind', 'Job')} (integrations.frameworks of its configuration)"
        )
        return KueueAnswer(problem=QueueWait(queue, NOT_MADE, text, since))

    def _discovered(self) -> ResourceType | None:
        version = self._api.preferred_version(GROUP)
        return None if version is None else ResourceType(version, "workloads", "Workload")


def _delay_seconds(problem: QueueWait | None, before: Read[KueueAnswer] | None, version: str) -> float:
    """The delay after a read, by what it says of a wait without a Workload and the read before."""
    if problem is None or problem.reason != NOT_MADE:
        return POLL_SECONDS
    if before is None:
        return FIRST_POLL_SECONDS
    return before.delay_seconds if before.version != version else min(2 * before.delay_seconds, POLL_SECONDS)
