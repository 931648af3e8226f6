"""Reads why no pod of a workload can be created: a quota, a policy of the namespace or a webhook refuses it.

The Job controller says so in Events alone, which are many and are not watched. They are read for an attempt that has
lacked a pod for some seconds, and then ever less often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import JOBS, ClusterApi, NotFoundError, RejectedError, ResourceType
from wattloop_operator.cluster.polled_reads import PolledReads, job_name_of
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState

logger = logging.getLogger(__name__)

# The core API can select Events by their object, which is an indexed look-up.
CORE_EVENTS = ResourceType("v1", "events", "Event")
FAILED_CREATE = "FailedCreate"
# A Job has its pods within a second or two.
FIRST_READ_SECONDS = 5.0
MAX_DELAY_SECONDS = 40.0
MAX_MESSAGE_CHARACTERS = 512


class RefusedPods:
    """Why attempts lack pods.

    Args:
        api: The API server.
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
