"""The jobs of a cluster, read with the rights of the kubeconfig's user: the API server decides what a reader sees."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    RECURRING_TRAINING_JOBS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    TRAINING_RECURRENCES,
    Body,
    ClusterApi,
    NotFoundError,
    RejectedError,
    ResourceType,
)
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.gpu_holders import HeldGpu, gpus_of
from wattloop_operator.history.history_sources import read_object
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobOverview, overview_of
from wattloop_operator.history.month_usage import MonthUsage
from wattloop_operator.page.job_source import SourcedJob, command_line

# An open page asks once a second; the API server is asked this often at most.
READ_SECONDS = 3.0
NODE_UNKNOWN = "node not known"
LATEST_ALONE = (
    "A cluster keeps only the latest recurrences as objects, which the table and the plots have. State, beliefs and "
    "savings are the operator's, of all recurrences."
)
OPERATOR_DECIDES = "The operator decides it when it is due, from its database, which has more than the objects."
MONTH_UNKNOWN = (
    "A cluster keeps only the latest recurrences as objects. The operator's database has those of each month: "
    "wattloop ui --database URL, or the command below."
)


@dataclass(frozen=True)
class ClusterObjects:
    """The objects that the reader may list, as they were at one moment.

    Attributes:
        jobs: The bodies of the jobs.
        recurrences: The bodies of the recurrences, by the uid of their job.
        version: Changes with any of them.
    """

    jobs: Mapping[JobKey, Body]
    recurrences: Mapping[str, list[Body]]
    version: str


class ClusterJobs:
    """The `JobSource` of a cluster. Thread-safe.

    Args:
        api: The API server, with the reader's credentials.
        context: The context of the kubeconfig that is read.
        namespace: The only namespace to read; empty: all.
        kubeconfig: The file that has the context, as the user named it; None: the usual one.
        clock: Monotonic seconds.
    """

    gpus_unknown = ""
    month_unknown = MONTH_UNKNOWN

    def __init__(
        self,
        api: ClusterApi,
        context: str,
        namespace: str = "",
        kubeconfig: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, ClusterObjects | OperationError] | None = None
        # The reader's shell may have another current context.
        self._cluster = ("--context", context, *(() if kubeconfig is None else ("--kubeconfig", kubeconfig)))
        self.name = f"context {context}, {f'namespace {namespace}' if namespace else 'all namespaces'}"

    def version(self) -> str:
        """See `JobSource`."""
        return self._objects().version

    def keys(self) -> tuple[JobKey, ...]:
        """See `JobSource`."""
        return tuple(sorted(self._objects().jobs, key=str))

    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobOverview, ...]:
        """See `JobSource`."""
        jobs = self._objects().jobs
        return tuple(overview_of(_job(jobs[key])) for key in keys if key in jobs)

    def job(self, key: JobKey) -> SourcedJob | None:
        """See `JobSource`."""
        objects = self._objects()
        if key not in objects.jobs:
            return None
        job = _job(objects.jobs[key])
        bodies = objects.recurrences.get(job.metadata.uid, ())
        snapshot = Snapshot(job=job, recurrences=tuple(_recurrence(each) for each in bodies))
        history = JobHistory.of_snapshot(snapshot)
        version = _history_version(job, history, bodies)
        return SourcedJob(key, history, snapshot, version, LATEST_ALONE, OPERATOR_DECIDES)

    def held_gpus(self) -> tuple[HeldGpu, ...]:
        """See `JobSource`."""
        objects = self._objects()
        found: list[HeldGpu] = []
        for body in objects.jobs.values():
            bodies = objects.recurrences.get(str(body["metadata"]["uid"]), ())
            running = [each for each in bodies if not _has_ended(each)]
            if running:
                deadline = _job(body).spec.active_deadline_seconds
                found += [gpu for each in running for gpu in gpus_of(_recurrence(each), deadline, NODE_UNKNOWN)]
        return tuple(found)

    def month(self, begin: datetime) -> tuple[MonthUsage, ...]:  # noqa: ARG002
        """See `JobSource`."""
        return ()

    def latest_end(self) -> datetime | None:
        """See `JobSource`."""
        return None

    @property
    def first_step(self) -> str:
        """See `JobSource`."""
        return self._kubectl("apply", "--filename", "job.yaml")

    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """See `JobSource`."""
        if key is not None:
            return self._kubectl("wattloop", words[0], key.name, "--namespace", key.namespace)
        where = ("--namespace", self._namespace) if self._namespace else ("--all-namespaces",)
        if "--month" in words:
            return command_line(("wattloop", words[0], "--database", "URL", *words[1:]))
        # No column of kubectl has the GPUs.
        return "" if "--gpus" in words else self._kubectl("get", "rtj", *where, "--output=wide")

    def conditions_command(self, key: JobKey) -> str:
        """See `JobSource`."""
        return self._kubectl("describe", "rtj", key.name, "--namespace", key.namespace)

    def _kubectl(self, *words: str) -> str:
        return command_line(("kubectl", *words, *self._cluster))

    def _objects(self) -> ClusterObjects:
        # Held while the server is asked, so that the pages that are open ask it once together.
        with self._lock:
            known = self._known
            if known is None or self._clock() - known[0] >= READ_SECONDS:
                # An error is kept, too: each page would else wait for a server that does not answer, one after another.
                objects = self._read_or_error()
                known = self._known = self._clock(), objects
        if isinstance(known[1], OperationError):
            raise known[1].with_traceback(None)
        return known[1]

    def _read_or_error(self) -> ClusterObjects | OperationError:
        try:
            return self._read()
        except OperationError as error:
            return error

    def _read(self) -> ClusterObjects:
        jobs, recurrences = self._list(RECURRING_TRAINING_JOBS), self._list(TRAINING_RECURRENCES)
        by_job: dict[str, list[Body]] = {}
        for each in recurrences:
            by_job.setdefault(str(each["spec"]["jobRef"]["uid"]), []).append(each)
        keys = {JobKey(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in jobs}
        return ClusterObjects(keys, by_job, _digest(_versions((*jobs, *recurrences))))

    def _list(self, resource: ResourceType) -> list[Body]:
        try:
            return self._api.list(resource, namespace=self._namespace)[0]
        except NotFoundError:
            raise OperationError("the cluster does not have Wattloop's kinds; install the chart first") from None
        except RejectedError as error:
            raise OperationError(
                f"{error}; ask for the right, or name a namespace that you may read with -n"
            ) from error


def may_list_everywhere(api: ClusterApi) -> bool:
    """Whether the reader may list jobs and recurrences of all namespaces, as the API server says.

    Raises:
        OperationError: It does not answer, or does not accept the credentials.
    """
    return all(_may_list(api, each) for each in (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES))


def _may_list(api: ClusterApi, resource: ResourceType) -> bool:
    group, _, _ = resource.api_version.rpartition("/")
    asked = {"resourceAttributes": {"group": group, "resource": resource.plural, "verb": "list"}}
    kind = SELF_SUBJECT_ACCESS_REVIEWS
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": asked}
    try:
        return bool((api.review(kind, body).get("status") or {}).get("allowed"))
    except RejectedError:
        return False


def _has_ended(recurrence: Body) -> bool:
    return bool((recurrence.get("status") or {}).get("result"))


def _history_version(job: RecurringTrainingJob, history: JobHistory, recurrences: Sequence[Body]) -> str:
    """A text that changes with the recurrences that ended, and with the settings by which they are evaluated."""
    settings = replace(history, records=(), profiles=())
    ended = _versions([each for each in recurrences if _has_ended(each)])
    return _digest((job.metadata.uid, job.metadata.generation, settings, ended))


def _versions(bodies: Sequence[Body]) -> list[tuple[str, str]]:
    return sorted((str(each["metadata"]["uid"]), str(each["metadata"]["resourceVersion"])) for each in bodies)


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _job(body: Body) -> RecurringTrainingJob:
    return read_object(RecurringTrainingJob, body, _name_of(body))


def _recurrence(body: Body) -> TrainingRecurrence:
    return read_object(TrainingRecurrence, body, _name_of(body))


def _name_of(body: Body) -> str:
    metadata = body.get("metadata") or {}
    return f"{body.get('kind')} {metadata.get('namespace')}/{metadata.get('name')}"
