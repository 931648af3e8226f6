"""The jobs of a cluster: all that the page's credentials list, or the part of them that a viewer may list."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from wattloop.errors import InputError, OperationError
from wattloop_operator.api.gpu_node import GPUNode
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import Attribution, Usage
from wattloop_operator.cluster.api import GPU_NODES, SELF_SUBJECT_ACCESS_REVIEWS, Body, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.token_review import SERVICE_ACCOUNT_PREFIX
from wattloop_operator.cluster.auth.viewers import ALL_NAMESPACES, LISTED, Viewer, ViewerRights, listing
from wattloop_operator.domain.job_identity import annotated_uid, history_uid, is_shown
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs
from wattloop_operator.history.gpu_holders import GpuLine, gpus_of_attempt
from wattloop_operator.history.history_sources import read_object
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobLine, overview_of, unread_overview
from wattloop_operator.history.month_usage import MonthUsage, next_month, usage_of_job
from wattloop_operator.page.cluster_objects import (
    ClusterObjects,
    attempt_of,
    change_digest,
    ended_at,
    first_of,
    has_ended,
    job_of,
    versions,
)
from wattloop_operator.page.cluster_reader import (
    GPU_NODES_NOT_SHOWN,
    GPU_NODES_REFUSED,
    GPU_NODES_UNREAD,
    ClusterReader,
    GpuNodeBodies,
)
from wattloop_operator.page.job_source import JobSource, SourcedGpus, SourcedJob
from wattloop_operator.store import AttemptUsage

Value = TypeVar("Value")

# What a viewer may list is found out so often at most.
VIEW_SECONDS = 1.0
# What the API server answers the page is not for its viewers.
NOT_FOR_VIEWERS = "the page cannot read the cluster now; its log has the reason"
UNREVIEWED = (
    "your rights are not reviewed in all namespaces yet, of which a few are reviewed a second: jobs may be missing; a "
    "job that you open by its address is found at once"
)
TOO_MANY_REVIEWS = "your rights cannot be reviewed now, because many were; try again in a few seconds"
NODE_UNKNOWN = "node not known"
LATEST_ALONE = (
    "A cluster keeps only the latest recurrences as objects, which the table and the plots have. State, beliefs and "
    "savings are the operator's, of all recurrences."
)
MONTH_PARTIAL = (
    "These are the recurrences that the cluster keeps as objects, the latest ones of each job that exists{since}. The "
    "operator's database has all of a month: wattloop ui --database URL, or the command below."
)


class ClusterJobs(JobSource):
    """All jobs that the page's credentials list. Thread-safe.

    Args:
        reader: Reads the objects.
        kubectl_options: The options by which kubectl reads the same cluster.
        tariffs: The tariffs.
    """

    def __init__(
        self, reader: ClusterReader, kubectl_options: Sequence[str] = (), tariffs: Tariffs = NO_TARIFFS
    ) -> None:
        self._reader = reader
        self._tariffs = tariffs
        self._kubectl_options = tuple(kubectl_options)
        self.name = reader.name
        self.first_step = self._kubectl("apply", "--filename", "job.yaml")

    def objects(self, namespace: str | None = None) -> ClusterObjects:  # noqa: ARG002
        """The objects, of which those of one namespace are asked for; None: of all."""
        return self._reader.objects()

    def gpu_nodes(self) -> GpuNodeBodies:
        """The GPUNodes, or why they are missing."""
        return self._reader.gpu_nodes.listed()

    def where(self) -> tuple[str, ...]:
        """The options by which kubectl lists the same namespaces."""
        return namespace_options(self._reader.namespaces)

    def refresh(self) -> None:
        """See `JobSource`."""
        self._reader.refresh()

    def outdated_seconds(self) -> float:
        """See `JobSource`."""
        return self._reader.outdated_seconds()

    def version(self) -> str:
        """See `JobSource`."""
        return self.objects().version

    def keys(self) -> tuple[JobKey, ...]:
        """See `JobSource`."""
        namespaces = self.objects().namespaces
        return tuple(sorted((JobKey(name, job) for name, each in namespaces.items() for job in each.jobs), key=str))

    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobLine, ...]:
        """See `JobSource`."""
        objects = self.objects()
        found = ((key, _body(objects, key)) for key in keys)
        return tuple(_overview(key, body) for key, body in found if body is not None)

    def job(self, key: JobKey) -> SourcedJob | None:
        """See `JobSource`."""
        objects = self.objects(key.namespace)
        body = _body(objects, key)
        if body is None:
            if objects.unread or objects.unreviewed:
                raise OperationError("; ".join(objects.missing()))
            return None
        job = job_of(body)
        namespace = objects.namespaces[key.namespace]
        bodies = namespace.recurrences.get(history_uid(job), ())
        read, missing = _read_each(bodies, attempt_of)
        recurrences = tuple(each for each in read if is_shown(job, each))
        snapshot = Snapshot(job=job, recurrences=recurrences, tariff=self._tariffs.of(key.namespace))
        history = JobHistory.of_snapshot(snapshot)
        # What ended, and the settings by which it is evaluated.
        settings, ended = replace(history, records=(), profiles=()), versions(filter(has_ended, bodies))
        version = change_digest((job.metadata.uid, job.metadata.generation, settings, ended))
        missing += (*namespace.lost.get(key.name, ()), *namespace.lost.get("", ()))
        return SourcedJob(key, history, snapshot, version, LATEST_ALONE, missing)

    def missing(self) -> tuple[str, ...]:
        """See `JobSource`."""
        return self.objects().missing()

    def gpus(self) -> SourcedGpus:
        """See `JobSource`."""
        objects = self.objects()
        pods = {
            (str(body["metadata"]["namespace"]), str(body["metadata"]["name"])): frozenset(
                str(each["uid"]) for each in (body.get("status") or {}).get("pods") or ()
            )
            for namespace in objects.namespaces.values()
            for bodies in namespace.recurrences.values()
            for body in bodies
            if not has_ended(body)
        }
        listed, unread = self.gpu_nodes()
        bodies = sorted(listed, key=_node_name)
        nodes, missing = _read_each(bodies, lambda body: read_object(GPUNode, body, f"GPUNode {_node_name(body)}"))
        return SourcedGpus(tuple(_held_gpus(objects)), "", pods, nodes, unread, first_of(missing))

    def month(self, begin: datetime) -> tuple[MonthUsage, ...]:
        """See `JobSource`."""
        objects, end = self.objects(), next_month(begin)
        usages: defaultdict[JobKey, list[AttemptUsage]] = defaultdict(list)
        for key, recurrence in _ended(objects):
            if begin <= ended_at(recurrence) < end:
                usages[key].append(_attempt_usage(key, recurrence))
        found = []
        for key in sorted(usages, key=lambda each: (each.namespace, each.name)):
            namespace = objects.namespaces[key.namespace]
            problem = namespace.unreadable.get(key.name, "")
            job = None if problem else read_object(RecurringTrainingJob, namespace.jobs[key.name], str(key))
            usage = usage_of_job(key.namespace, key.name, job, usages[key], self._tariffs.of(key.namespace))
            # What the job says of its energies is not known either.
            found.append(usage.model_copy(update={"energy_note": problem}) if problem else usage)
        return tuple(found)

    def month_partial(self) -> str:
        """See `JobSource`."""
        first = min((ended_at(each) for _, each in _ended(self.objects())), default=None)
        return MONTH_PARTIAL.format(since="" if first is None else f", since {first:%Y-%m-%d}")

    def latest_end(self) -> datetime | None:
        """See `JobSource`."""
        return max((ended_at(each) for _, each in _ended(self.objects())), default=None)

    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """See `JobSource`."""
        if key is not None:
            return self._kubectl("wattloop", words[0], key.name, "--namespace", key.namespace)
        if "--month" in words:
            return shlex.join(("wattloop", words[0], "--database", "URL", *words[1:]))
        if "--gpus" in words:
            return "" if self.gpu_nodes()[1] else self._kubectl("describe", "gpunodes")
        return self._kubectl("get", "rtj", *self.where(), "--output=wide")

    def conditions_command(self, key: JobKey) -> str:
        """See `JobSource`."""
        return self._kubectl("describe", "rtj", key.name, "--namespace", key.namespace)

    def _kubectl(self, *words: str) -> str:
        return shlex.join(("kubectl", *words, *self._kubectl_options))


class ViewerJobs(ClusterJobs):
    """The jobs that a viewer may list, of those that a reader lists for all viewers. Thread-safe."""

    def __init__(
        self,
        reader: ClusterReader,
        rights: ViewerRights,
        viewer: Viewer,
        clock: Callable[[], float],
        tariffs: Tariffs = NO_TARIFFS,
    ) -> None:
        super().__init__(reader, tariffs=tariffs)
        self._rights = rights
        self._viewer = viewer
        self._clock = clock
        # When it was found out which of these objects he may list, and those.
        self._known: tuple[float, ClusterObjects, ClusterObjects] | None = None
        self.name = reader.name.partition(",")[0]
        self.viewer = viewer.name

    def objects(self, namespace: str | None = None) -> ClusterObjects:
        """See `ClusterJobs`."""
        try:
            objects = self._reader.objects()
            if namespace is not None:
                return self._of_namespace(objects, namespace)
            now, known = self._clock(), self._known
            # A view asks several times.
            if known is None or known[1] is not objects or now - known[0] >= VIEW_SECONDS:
                readable = self._rights.readable(self._viewer, (*objects.namespaces, *objects.unread))
                found = objects.of(readable.names, "" if readable.complete else UNREVIEWED)
                self._known = known = now, objects, found
            return known[2]
        except OperationError as error:
            self._reader.problems.met("the jobs cannot be read", str(error))
            raise OperationError(NOT_FOR_VIEWERS) from error

    def _of_namespace(self, objects: ClusterObjects, namespace: str) -> ClusterObjects:
        """Those of a namespace that the viewer names. He learns of those alone that he may list whether they exist."""
        if self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return objects.of((namespace,))
        allowed = self._rights.may_list(self._viewer, namespace)
        return objects.of((namespace,) if allowed else (), TOO_MANY_REVIEWS if allowed is None else "")

    def sees_any(self) -> bool:
        """See `JobSource`."""
        return bool(self.objects().namespaces) or self._rights.may_list(self._viewer, ALL_NAMESPACES) is True

    def gpu_nodes(self) -> GpuNodeBodies:
        """See `ClusterJobs`."""
        try:
            allowed = self._rights.may_list(self._viewer, ALL_NAMESPACES, (GPU_NODES,))
        except OperationError as error:
            self._reader.problems.met(GPU_NODES_NOT_SHOWN, str(error))
            return (), GPU_NODES_UNREAD
        if allowed:
            return super().gpu_nodes()
        if allowed is None:
            return (), TOO_MANY_REVIEWS
        return (), GPU_NODES_REFUSED.format(user=self.viewer, option=_subject_option(self.viewer))

    def where(self) -> tuple[str, ...]:
        """See `ClusterJobs`."""
        if self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return super().where()
        names = tuple(self.objects().namespaces)
        return namespace_options(names if len(names) == 1 else ("NAMESPACE",))

    def no_jobs_reason(self) -> str:
        """See `JobSource`."""
        if self.objects().missing() or self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return ""
        return (
            f"{self.viewer} may list recurringtrainingjobs and trainingrecurrences in no namespace that has any. "
            "The role view of a namespace has these rights; its administrator gives it by: "
            "kubectl create rolebinding wattloop-viewer --clusterrole=view "
            f"{_subject_option(self.viewer)} --namespace NAMESPACE"
        )


def namespace_options(names: Sequence[str]) -> tuple[str, ...]:
    """The options by which kubectl lists a namespace; it lists one, or all.

    Example:
        >>> namespace_options(["team"]), namespace_options([])
        (('--namespace', 'team'), ('--all-namespaces',))
    """
    return ("--namespace", names[0]) if len(names) == 1 else ("--all-namespaces",)


def may_list_everywhere(api: ClusterApi) -> bool:
    """Whether the reader may list jobs and recurrences of all namespaces, as the API server says.

    Raises:
        OperationError: It does not answer, or does not accept the credentials.
    """
    specs = ({"resourceAttributes": listing(each, ALL_NAMESPACES)} for each in LISTED)
    try:
        return all(api.review(SELF_SUBJECT_ACCESS_REVIEWS, spec).get("allowed") for spec in specs)
    except RejectedError:
        return False


def _subject_option(user: str) -> str:
    """The option by which kubectl binds a role to a user."""
    if user.startswith(SERVICE_ACCOUNT_PREFIX):
        return f"--serviceaccount={user.removeprefix(SERVICE_ACCOUNT_PREFIX)}"
    return f"--user={user}"


def _held_gpus(objects: ClusterObjects) -> Iterator[GpuLine]:
    for namespace in objects.namespaces.values():
        for name, body in namespace.jobs.items():
            metadata = ObjectMeta.model_validate(body["metadata"])
            bodies = namespace.recurrences.get(annotated_uid(metadata) or metadata.uid, ())
            running = [each for each in bodies if not has_ended(each)]
            if running and name not in namespace.unreadable:
                deadline = job_of(body).spec.active_deadline_seconds
                for each in running:
                    yield from gpus_of_attempt(attempt_of(each), deadline, NODE_UNKNOWN)


def _ended(objects: ClusterObjects) -> Iterator[tuple[JobKey, Body]]:
    for namespace, each in objects.namespaces.items():
        for name, job in each.jobs.items():
            for recurrence in each.recurrences.get(str(job["metadata"]["uid"]), ()):
                if has_ended(recurrence):
                    yield JobKey(namespace, name), recurrence


def _attempt_usage(key: JobKey, recurrence: Body) -> AttemptUsage:
    """The usage as the operator's database has it, late usage included; a model of all of an object takes too long."""
    status, name = recurrence["status"], recurrence["metadata"]["name"]
    usage = read_object(Usage, status["usage"], f"{key.namespace}/{name}") if status.get("usage") else None
    return AttemptUsage(
        key.namespace,
        key.name,
        name,
        energy_joules=0.0 if usage is None else float(usage.gpu_energy_joules),
        time_seconds=0.0 if usage is None else float(usage.duration_seconds),
        gpu_product="",
        gpu_count=0 if usage is None else usage.devices,
        attribution=(Attribution.UNKNOWN if usage is None else usage.attribution).value,
        finished_at=ended_at(recurrence),
    )


def _node_name(body: Body) -> str:
    return str(body["metadata"]["name"])


def _overview(key: JobKey, body: Body) -> JobLine:
    try:
        return overview_of(job_of(body))
    except InputError as error:
        return unread_overview(key, str(error))


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
