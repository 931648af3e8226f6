"""The jobs of a cluster, of which the API server decides what a viewer sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from wattloop.errors import InputError, OperationError
from wattloop_operator.api.gpu_node import GPUNode
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    SELF_SUBJECT_ACCESS_REVIEWS,
    Body,
    ClusterApi,
    RejectedError,
    ResourceType,
)
from wattloop_operator.cluster.auth.viewer_rights import ALL_NAMESPACES, LISTED, listing
from wattloop_operator.domain.job_identity import annotated_uid, history_uid, is_shown
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.gpu_holders import HeldGpu, gpus_of_attempt
from wattloop_operator.history.history_sources import read_object
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobOverview, overview_of, unread_overview
from wattloop_operator.history.month_usage import MonthUsage
from wattloop_operator.page.cluster_month import kept_ends, kept_usages
from wattloop_operator.page.cluster_objects import ClusterObjects, change_digest, first_of, versions
from wattloop_operator.page.cluster_reader import ObjectReader
from wattloop_operator.page.job_source import GpuNodes, SourcedJob, command_line

Value = TypeVar("Value")

NODE_UNKNOWN = "node not known"
LATEST_ALONE = (
    "A cluster keeps only the latest recurrences as objects, which the table and the plots have. State, beliefs and "
    "savings are the operator's, of all recurrences."
)
MONTH_PARTIAL = (
    "These are the recurrences that the cluster keeps as objects, the latest ones of each job that exists{since}. The "
    "operator's database has all of a month: wattloop ui --database URL, or the command below."
)


class ClusterJobs:
    """The `JobSource` of a cluster. Thread-safe.

    Args:
        reader: Reads the objects.
        kubectl_options: The options by which kubectl reads the same cluster.
        tariffs: The tariffs.
    """

    gpus_unknown = ""

    def __init__(
        self, reader: ObjectReader, kubectl_options: Sequence[str] = (), tariffs: Tariffs = NO_TARIFFS
    ) -> None:
        self._reader = reader
        self._tariffs = tariffs
        self._kubectl_options = tuple(kubectl_options)
        self.viewer = reader.viewer

    @property
    def name(self) -> str:
        """See `JobSource`."""
        return self._reader.name

    @property
    def unreadable_rows(self) -> tuple[str, ...]:
        """See `JobSource`: objects that cannot be read are among what is missing."""
        return ()

    def refresh(self) -> None:
        """See `JobSource`."""
        self._reader.refresh()

    def outdated_seconds(self) -> float:
        """See `JobSource`."""
        return self._reader.outdated_seconds()

    def version(self) -> str:
        """See `JobSource`."""
        return self._reader.objects().version

    def sees_any(self) -> bool:
        """See `JobSource`."""
        return self._reader.sees_any()

    def keys(self) -> tuple[JobKey, ...]:
        """See `JobSource`."""
        namespaces = self._reader.objects().namespaces
        return tuple(sorted((JobKey(name, job) for name, each in namespaces.items() for job in each.jobs), key=str))

    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobOverview, ...]:
        """See `JobSource`."""
        objects = self._reader.objects()
        found = ((key, _body(objects, key)) for key in keys)
        return tuple(_overview(key, body) for key, body in found if body is not None)

    def job(self, key: JobKey) -> SourcedJob | None:
        """See `JobSource`."""
        objects = self._reader.objects(key.namespace)
        body = _body(objects, key)
        if body is None:
            if objects.unread or objects.unreviewed:
                raise OperationError("; ".join(objects.missing()))
            return None
        job = _job(body)
        namespace = objects.namespaces[key.namespace]
        bodies = namespace.recurrences.get(history_uid(job), ())
        read, missing = _read_each(bodies, _recurrence)
        recurrences = tuple(each for each in read if is_shown(job, each))
        snapshot = Snapshot(job=job, recurrences=recurrences, tariff=self._tariffs.of(key.namespace))
        history = JobHistory.of_snapshot(snapshot)
        version = _history_version(job, history, bodies)
        missing += (*namespace.lost.get(key.name, ()), *namespace.lost.get("", ()))
        return SourcedJob(key, history, snapshot, version, LATEST_ALONE, missing)

    def held_gpus(self) -> tuple[HeldGpu, ...]:
        """See `JobSource`."""
        found: list[HeldGpu] = []
        for namespace in self._reader.objects().namespaces.values():
            for body in namespace.jobs.values():
                metadata = ObjectMeta.model_validate(body["metadata"])
                bodies = namespace.recurrences.get(annotated_uid(metadata) or metadata.uid, ())
                running = [each for each in bodies if not _has_ended(each)]
                if running and body["metadata"]["name"] not in namespace.unreadable:
                    deadline = _job(body).spec.active_deadline_seconds
                    found += [
                        gpu for each in running for gpu in gpus_of_attempt(_recurrence(each), deadline, NODE_UNKNOWN)
                    ]
        return tuple(found)

    def pods_of_attempts(self) -> Mapping[tuple[str, str], Collection[str]]:
        """See `JobSource`."""
        return {
            (str(body["metadata"]["namespace"]), str(body["metadata"]["name"])): _pod_uids(body)
            for namespace in self._reader.objects().namespaces.values()
            for bodies in namespace.recurrences.values()
            for body in bodies
            if not _has_ended(body)
        }

    def gpu_nodes(self) -> GpuNodes:
        """See `JobSource`."""
        listed = self._reader.gpu_nodes()
        bodies = sorted(listed.bodies, key=_node_name)
        nodes, missing = _read_each(bodies, lambda body: read_object(GPUNode, body, f"GPUNode {_node_name(body)}"))
        return GpuNodes(nodes, listed.unread, first_of(missing))

    @property
    def month_partial(self) -> str:
        """See `JobSource`."""
        ends = kept_ends(self._reader.objects())
        return MONTH_PARTIAL.format(since="" if ends is None else f", since {ends[0]:%Y-%m-%d}")

    def month(self, begin: datetime) -> tuple[MonthUsage, ...]:
        """See `JobSource`."""
        return kept_usages(self._reader.objects(), begin, self._tariffs)

    def latest_end(self) -> datetime | None:
        """See `JobSource`."""
        ends = kept_ends(self._reader.objects())
        return None if ends is None else ends[1]

    @property
    def first_step(self) -> str:
        """See `JobSource`."""
        return self._kubectl("apply", "--filename", "job.yaml")

    def missing(self) -> tuple[str, ...]:
        """See `JobSource`."""
        return self._reader.objects().missing()

    def no_jobs_reason(self) -> str:
        """See `JobSource`."""
        return self._reader.no_jobs_reason()

    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """See `JobSource`."""
        if key is not None:
            return self._kubectl("wattloop", words[0], key.name, "--namespace", key.namespace)
        if "--month" in words:
            return command_line(("wattloop", words[0], "--database", "URL", *words[1:]))
        if "--gpus" in words:
            return "" if self._reader.gpu_nodes().unread else self._kubectl("describe", "gpunodes")
        return self._kubectl("get", "rtj", *self._reader.where(), "--output=wide")

    def conditions_command(self, key: JobKey) -> str:
        """See `JobSource`."""
        return self._kubectl("describe", "rtj", key.name, "--namespace", key.namespace)

    def _kubectl(self, *words: str) -> str:
        return command_line(("kubectl", *words, *self._kubectl_options))


def may_list_everywhere(api: ClusterApi) -> bool:
    """Whether the reader may list jobs and recurrences of all namespaces, as the API server says.

    Raises:
        OperationError: It does not answer, or does not accept the credentials.
    """
    return all(_may_list(api, each) for each in LISTED)


def _may_list(api: ClusterApi, resource: ResourceType) -> bool:
    spec = {"resourceAttributes": listing(resource, ALL_NAMESPACES)}
    try:
        return bool(api.review(SELF_SUBJECT_ACCESS_REVIEWS, spec).get("allowed"))
    except RejectedError:
        return False


def _has_ended(recurrence: Body) -> bool:
    return bool((recurrence.get("status") or {}).get("result"))


def _pod_uids(recurrence: Body) -> frozenset[str]:
    return frozenset(str(each["uid"]) for each in (recurrence.get("status") or {}).get("pods") or ())


def _history_version(job: RecurringTrainingJob, history: JobHistory, recurrences: Sequence[Body]) -> str:
    """A text that changes with the recurrences that ended, and with the settings by which they are evaluated."""
    settings = replace(history, records=(), profiles=())
    ended = versions(each for each in recurrences if _has_ended(each))
    return change_digest((job.metadata.uid, job.metadata.generation, settings, ended))


def _node_name(body: Body) -> str:
    return str(body["metadata"]["name"])


def _overview(key: JobKey, body: Body) -> JobOverview:
    try:
        return overview_of(_job(body))
    except InputError as error:
        return unread_overview(key, error)


def _read_each(bodies: Iterable[Body], read: Callable[[Body], Value]) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    """Those of the objects that can be read, and why the others cannot."""
    found, problems = [], []
    for each in bodies:
        try:
            found.append(read(each))
        except InputError as error:
            problems.append(str(error))
    return tuple(found), tuple(problems)


def _body(objects: ClusterObjects, key: JobKey) -> Body | None:
    namespace = objects.namespaces.get(key.namespace)
    return None if namespace is None else namespace.jobs.get(key.name)


def _job(body: Body) -> RecurringTrainingJob:
    return read_object(RecurringTrainingJob, body, _name_of(body))


def _recurrence(body: Body) -> TrainingAttempt:
    """The attempt as its object states it: whoever looks at the page may read objects, and no database."""
    return TrainingAttempt.of(read_object(TrainingRecurrence, body, _name_of(body)), None)


def _name_of(body: Body) -> str:
    metadata = body.get("metadata") or {}
    return f"{body.get('kind')} {metadata.get('namespace')}/{metadata.get('name')}"
