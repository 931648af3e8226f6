"""What must be right before a job starts anything: its workload, by a dry run, and its training runtime."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from cachetools import LRUCache

from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi, RejectedError
from wattloop_operator.cluster.api_transport import ResponseTooLargeError
from wattloop_operator.workloads.injection import TemplateError
from wattloop_operator.workloads.kinds import kind_of_template
from wattloop_operator.workloads.workload_kind import RuntimeReference
from wattloop_planner.canonical_json import canonical_json

logger = logging.getLogger(__name__)

REASON = "TemplateRejected"
READY = "Ready"
# Quotas, policies and webhooks change independently of the job.
RECHECK_SECONDS = 60.0


class DryRunResult(NamedTuple):
    """For one generation of a job: why its workload is refused, empty if it is accepted, and the monotonic time."""

    generation: int | None
    refusal: str
    at: float


class DryRun:
    """The latest dry run of every job: whether the API server accepts its workload, asked once per generation.

    Args:
        create: Has the server validate the workload of a decision; raises `RejectedError` or
            `TemplateError`.
        clock: Monotonic seconds.
    """

    def __init__(
        self, create: Callable[[RecurringTrainingJob, TrainingRecurrence], None], clock: Callable[[], float]
    ) -> None:
        self._create = create
        self._clock = clock
        self._results: dict[str, DryRunResult] = {}

    def refusal(self, job: RecurringTrainingJob, sample: Callable[[], TrainingRecurrence | None]) -> str:
        """Why the server refuses the workload of this job; empty if it accepts it.

        Args:
            job: The job.
            sample: Returns a decision for the dry run; None if nothing can start, so nothing can be
                refused.

        Raises:
            OperationError: The API server does not answer now.
        """
        known = self._results.get(job.metadata.uid)
        generation = job.metadata.generation
        if known is not None and known.generation == generation:
            if not known.refusal or self._clock() - known.at < RECHECK_SECONDS:
                return known.refusal
        elif known is None and job.status.observed_generation == generation:
            # A previous operator process may have found the same generation accepted.
            ready = next((each for each in job.status.conditions if each.type == READY), None)
            if ready is not None and ready.reason != REASON:
                return self._record(job, "")
        decision = sample()
        if decision is None:
            return ""
        try:
            self._create(job, decision)
        except (RejectedError, TemplateError) as error:
            return self.refuse(job, str(error))
        return self._record(job, "")

    def is_refused(self, job: RecurringTrainingJob) -> bool:
        """Whether the latest result for this generation is a refusal."""
        known = self._results.get(job.metadata.uid)
        return known is not None and known.generation == job.metadata.generation and bool(known.refusal)

    def refuse(self, job: RecurringTrainingJob, reason: str) -> str:
        """Record that the server refused a workload of this generation; returns the recorded reason."""
        logger.warning("%s/%s: its workload is refused: %s", job.metadata.namespace, job.metadata.name, reason)
        return self._record(job, printable(reason))

    def forget(self, job_uid: str) -> None:
        """Drop the result of a deleted job."""
        self._results.pop(job_uid, None)

    def _record(self, job: RecurringTrainingJob, refusal: str) -> str:
        self._results[job.metadata.uid] = DryRunResult(job.metadata.generation, refusal, self._clock())
        return refusal


# Jobs that share a runtime share its reads.
MAX_AGE_SECONDS = 10.0
MAX_RUNTIMES = 10_000
RIGHT_REMEDY = "; the chart gives the right with an entry of operator.workloadKinds for the kind TrainJob"


class Runtime(NamedTuple):
    """What is known of a training runtime.

    Attributes:
        digest: Digest of its spec as it was read last; empty if a template refers to none; None if it was never read.
        problem: Why nothing can start with it, and what to do; empty if something can.
    """

    digest: str | None
    problem: str = ""


class _Read(NamedTuple):
    """A read of a runtime: when, on the monotonic clock, and what is known since."""

    at: float
    runtime: Runtime


_Key = tuple[str, RuntimeReference]
NO_RUNTIME = Runtime("")


class TrainingRuntimes:
    """The training runtimes of TrainJobs: a change of one changes what is trained, as one of a template. Thread-safe.

    A runtime that cannot be read starts nothing, because an attempt records what it trains. It never hinders an
    attempt that runs, nor counts as a change.

    Args:
        monotonic: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._monotonic = monotonic
        self._reads: LRUCache[_Key, _Read] = LRUCache(MAX_RUNTIMES)
        self._lock = threading.Lock()

    def known(self, job: RecurringTrainingJob) -> Runtime:
        """The runtime of a job's workloads, as it was a few seconds ago or, if the server fails, longer ago."""
        key = _key(job)
        if key is None:
            return NO_RUNTIME
        before = self._last(key)
        if before is not None and self._monotonic() - before.at < MAX_AGE_SECONDS:
            return before.runtime
        try:
            return self._read(key)
        except OperationError as error:
            logger.warning("%s %s cannot be read now: %s", key[1].kind, key[1].name, error)
            return self._keep(key, Runtime(None) if before is None else before.runtime)

    def current(self, job: RecurringTrainingJob) -> Runtime:
        """The runtime of a job's workloads as it is now.

        Raises:
            OperationError: The API server does not answer now.
        """
        key = _key(job)
        return NO_RUNTIME if key is None else self._read(key)

    def has_problem(self, job: RecurringTrainingJob) -> bool:
        """Whether nothing could start with the runtime when it was read last."""
        key = _key(job)
        last = None if key is None else self._last(key)
        return last is not None and bool(last.runtime.problem)

    def _last(self, key: _Key) -> _Read | None:
        with self._lock:
            return self._reads.get(key)

    def _keep(self, key: _Key, runtime: Runtime) -> Runtime:
        with self._lock:
            self._reads[key] = _Read(self._monotonic(), runtime)
        return runtime

    def _read(self, key: _Key) -> Runtime:
        namespace, reference = key
        name = f"{reference.kind} {reference.name}"
        try:
            resource = self._api.resource_of(reference.api_version, reference.kind)
            body = self._api.find(resource, namespace, reference.name)
        except (RejectedError, ResponseTooLargeError) as error:
            remedy = RIGHT_REMEDY if "cannot get resource" in str(error) else ""
            problem = f"{name} cannot be read, so a change of it would not be noticed: {printable(str(error))}{remedy}"
        else:
            if body is not None:
                digest = hashlib.sha256(canonical_json(body.get("spec")).encode()).hexdigest()
                return self._keep(key, Runtime(digest))
            problem = f"{name} does not exist: create it, or correct spec.template.spec.runtimeRef"
        before = self._last(key)
        return self._keep(key, Runtime(None if before is None else before.runtime.digest, problem))


def _key(job: RecurringTrainingJob) -> _Key | None:
    """The namespace of a job's runtime, empty for one of the cluster, and the reference; None if it has none."""
    reference = kind_of_template(job.spec.template).runtime(job.spec.template)
    return None if reference is None else (job.metadata.namespace if reference.namespaced else "", reference)
