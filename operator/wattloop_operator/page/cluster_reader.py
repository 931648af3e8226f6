"""Reads the objects of a cluster for the live page: all that its credentials list, or a viewer's part of it."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wattloop.errors import OperationError
from wattloop.threads import TaskThread
from wattloop_operator.cluster.api import (
    GPU_NODES,
    Body,
    ClusterApi,
    NotFoundError,
    RejectedError,
    ResourceType,
)
from wattloop_operator.cluster.auth.token_review import SERVICE_ACCOUNT_PREFIX
from wattloop_operator.cluster.auth.viewer_rights import ALL_NAMESPACES, LISTED, ViewerRights
from wattloop_operator.cluster.auth.viewers import Viewer
from wattloop_operator.memory_shares import MEBIBYTE
from wattloop_operator.page.cluster_objects import ClusterObjects, namespace_objects
from wattloop_operator.page.gpu_node_reader import NOT_SHOWN as GPU_NODES_NOT_SHOWN
from wattloop_operator.page.gpu_node_reader import REFUSED as GPU_NODES_REFUSED
from wattloop_operator.page.gpu_node_reader import UNREAD as GPU_NODES_UNREAD
from wattloop_operator.page.gpu_node_reader import GpuNodeReader, ListedGpuNodes
from wattloop_operator.page.object_checks import ObjectChecks
from wattloop_operator.page.shown_parts import OMITTED, ShownParts
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

# An open page asks once a second; the API server is asked this often at most.
READ_SECONDS = 3.0
# Of older objects a page says when they were read; a program waits for newer ones.
MAX_AGE_SECONDS = 10.0
# What a viewer may list is found out so often at most.
VIEW_SECONDS = 1.0
OWN_REMEDY = "ask for the right, or name a namespace that you may read with -n"
REFUSED = "the page may not list it; its log has the reason"
TOO_LARGE_REMEDY = "delete jobs that are no longer needed, or lower their history limits"
UNEXPECTED = "the cluster cannot be read: an unexpected failure; see the log of the page"
# What the API server answers the page is not for its viewers.
NOT_FOR_VIEWERS = "the page cannot read the cluster now; its log has the reason"
UNREVIEWED = (
    "your rights are not reviewed in all namespaces yet, of which a few are reviewed a second: jobs may be missing; a "
    "job that you open by its address is found at once"
)
TOO_MANY_REVIEWS = "your rights cannot be reviewed now, because many were; try again in a few seconds"


class ObjectReader(Protocol):
    """Reads the objects that one viewer of the page may list."""

    @property
    def name(self) -> str:
        """What is read."""
        ...

    @property
    def viewer(self) -> str:
        """The user who has signed in; empty if nobody does."""
        ...

    def objects(self, namespace: str | None = None) -> ClusterObjects:
        """The objects, as they were read last; older ones are read again meanwhile.

        Args:
            namespace: The namespace that is asked for; None: all.

        Raises:
            OperationError: They cannot be read.
        """
        ...

    def sees_any(self) -> bool:
        """Whether some of the objects, or all that are made, are the viewer's to see."""
        ...

    def gpu_nodes(self) -> ListedGpuNodes:
        """The GPUNodes, or why they are missing."""
        ...

    def refresh(self) -> None:
        """Wait until the objects are not older than `MAX_AGE_SECONDS`."""
        ...

    def outdated_seconds(self) -> float:
        """The age of objects that are older than that, in seconds; 0 of younger ones."""
        ...

    def where(self) -> tuple[str, ...]:
        """The options by which kubectl lists the same namespaces."""
        ...

    def no_jobs_reason(self) -> str:
        """Why there is no job, although others may see some, and what to do; empty if some are missing, or none is."""
        ...


class ClusterReader:
    """Lists the objects with the rights of its credentials. Thread-safe.

    Args:
        api: The API server.
        cluster: What the cluster is called.
        namespaces: The namespaces to read; none: all.
        clock: Monotonic seconds.
        remedy: What helps if no namespace may be listed.
        namespace_bytes: Bytes of memory that the objects of a namespace may take, and GPUNodes; more are not shown.

    Attributes:
        problems: Why something is not shown.
    """

    viewer = ""

    def __init__(
        self,
        api: ClusterApi,
        cluster: str,
        namespaces: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        remedy: str = OWN_REMEDY,
        namespace_bytes: int = sys.maxsize,
    ) -> None:
        self._api = api
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._remedy = remedy
        self._namespace_bytes = namespace_bytes
        self._gpu_nodes = GpuNodeReader(api, clock, namespace_bytes)
        self._lock = threading.Lock()
        self._reading: TaskThread | None = None
        self._checks = ObjectChecks()
        self.problems = ProblemLog(logger)
        self._known: tuple[float, ClusterObjects | OperationError] | None = None
        named = f"namespace {', '.join(namespaces)}" if namespaces else "all namespaces"
        self.name = f"{cluster}, {named}"

    def objects(self, namespace: str | None = None) -> ClusterObjects:  # noqa: ARG002
        """See `ObjectReader`."""
        with self._lock:
            if self._known is None or (isinstance(self._known[1], OperationError) and self._must_read(READ_SECONDS)):
                self._await_reading(READ_SECONDS)
            # Asked first: a thread that has ended has left its objects.
            elif not (self._reading is not None and self._reading.is_alive()) and self._must_read(READ_SECONDS):
                thread = TaskThread(self._read_again, "live page")
                thread.start()
                self._reading = thread
            assert self._known is not None
            _, found = self._known
        if isinstance(found, OperationError):
            raise found.with_traceback(None)
        return found

    def sees_any(self) -> bool:
        """See `ObjectReader`."""
        return True

    def gpu_nodes(self) -> ListedGpuNodes:
        """See `ObjectReader`."""
        return self._gpu_nodes.listed()

    def refresh(self) -> None:
        """See `ObjectReader`."""
        with self._lock:
            self._await_reading(MAX_AGE_SECONDS)

    def outdated_seconds(self) -> float:
        """See `ObjectReader`."""
        known = self._known
        age = 0.0 if known is None or isinstance(known[1], OperationError) else self._clock() - known[0]
        return age if age >= MAX_AGE_SECONDS else 0.0

    def where(self) -> tuple[str, ...]:
        """See `ObjectReader`."""
        return namespace_options(self._namespaces)

    def no_jobs_reason(self) -> str:
        """See `ObjectReader`."""
        return ""

    def _await_reading(self, max_age_seconds: float) -> None:
        """Read the objects if they are older, under the lock, so that the pages that are open ask the server once."""
        if self._must_read(max_age_seconds) and self._reading is not None:
            # What it finds is new enough; a second reading would double the server's work and our memory.
            self._reading.join()
        if self._must_read(max_age_seconds):
            self._read_again()

    def _must_read(self, max_age_seconds: float) -> bool:
        """Whether objects that are older than this, or an old error, are all that is known."""
        if self._known is None:
            return True
        read_at, found = self._known
        return self._clock() - read_at >= (READ_SECONDS if isinstance(found, OperationError) else max_age_seconds)

    def _read_again(self) -> None:
        """Read the objects, or why they cannot be read; never by two threads at once. 10,000 take a second."""
        found: ClusterObjects | OperationError
        try:
            found = self._read()
        except OperationError as error:
            # It is kept, too: each page would else wait for a server that does not answer, one after another.
            found = error
        except Exception:
            # Else pages would show the objects before for ever, and each would begin a reading.
            logger.exception("unexpected failure while the cluster was read")
            found = OperationError(UNEXPECTED)
        self._known = self._clock(), found

    def _read(self) -> ClusterObjects:
        jobs: dict[str, list[Body]] = {}
        recurrences: dict[str, list[Body]] = {}
        refusals: dict[str, RejectedError] = {}
        parts = ShownParts(self._namespace_bytes)
        names = self._namespaces or ("",)
        for name in names:
            try:
                of_kinds = [self._listed(each, name, parts) for each in LISTED]
            except RejectedError as error:
                refusals[name] = error
                continue
            for by_namespace, bodies in zip((jobs, recurrences), of_kinds, strict=True):
                for each in bodies:
                    by_namespace.setdefault(each["metadata"]["namespace"], []).append(each)
        if refusals.keys() >= set(names):
            refusal = refusals[names[0]]
            raise OperationError(f"{refusal}; {self._remedy}") from refusal
        too_large = dict.fromkeys(parts.too_large(), self._too_large)
        problems = self._checks.problems(itertools.chain(*jobs.values()), itertools.chain(*recurrences.values()))
        reasons = {name: f"{error}; {self._remedy}" for name, error in refusals.items()} | too_large
        self._log_unread(reasons, next(iter(problems.values()), ""))
        return ClusterObjects(
            {
                name: namespace_objects(jobs.get(name, ()), recurrences.get(name, ()), problems)
                for name in sorted((jobs.keys() | recurrences.keys()) - too_large.keys())
            },
            dict.fromkeys(refusals, REFUSED) | too_large,
        )

    @property
    def _too_large(self) -> str:
        mebibytes = self._namespace_bytes // MEBIBYTE
        return f"it is too large, its objects take more than {mebibytes} MiB of the page's memory; {TOO_LARGE_REMEDY}"

    def _log_unread(self, reasons: Mapping[str, str], unreadable: str) -> None:
        problems = {f"namespace {name} is not shown": reason for name, reason in reasons.items()}
        problems |= {"objects cannot be read, the first of which is": unreadable} if unreadable else {}
        for subject, problem in problems.items():
            self.problems.met(subject, problem)
        self.problems.all_ended_but(problems)

    def _listed(self, resource: ResourceType, namespace: str, parts: ShownParts) -> list[Body]:
        try:
            found, _ = self._api.list(resource, namespace=namespace, part=parts.part)
            return [each for each in found if each is not OMITTED]
        except NotFoundError:
            raise OperationError("the cluster does not have Wattloop's kinds; install the chart first") from None


class ViewerReader:
    """The part of a reader's objects that a viewer may list. Thread-safe.

    Args:
        reader: Reads the objects of all viewers.
        rights: The rights of viewers.
        viewer: The viewer.
        clock: Monotonic seconds.
    """

    def __init__(self, reader: ClusterReader, rights: ViewerRights, viewer: Viewer, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._rights = rights
        self._viewer = viewer
        self._clock = clock
        # When it was found out which of these objects he may list, and those.
        self._known: tuple[float, ClusterObjects, ClusterObjects] | None = None
        self.viewer = viewer.name

    @property
    def name(self) -> str:
        """See `ObjectReader`."""
        return self._reader.name.partition(",")[0]

    def objects(self, namespace: str | None = None) -> ClusterObjects:
        """See `ObjectReader`."""
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

    def sees_any(self) -> bool:
        """See `ObjectReader`."""
        return bool(self.objects().namespaces) or self._rights.may_list(self._viewer, ALL_NAMESPACES) is True

    def _of_namespace(self, objects: ClusterObjects, namespace: str) -> ClusterObjects:
        """Those of a namespace that the viewer names. He learns of those alone that he may list whether they exist."""
        if self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return objects.of((namespace,))
        allowed = self._rights.may_list(self._viewer, namespace)
        return objects.of((namespace,) if allowed else (), TOO_MANY_REVIEWS if allowed is None else "")

    def gpu_nodes(self) -> ListedGpuNodes:
        """See `ObjectReader`."""
        try:
            allowed = self._rights.may_list(self._viewer, ALL_NAMESPACES, (GPU_NODES,))
        except OperationError as error:
            self._reader.problems.met(GPU_NODES_NOT_SHOWN, str(error))
            return ListedGpuNodes(unread=GPU_NODES_UNREAD)
        if allowed:
            return self._reader.gpu_nodes()
        if allowed is None:
            return ListedGpuNodes(unread=TOO_MANY_REVIEWS)
        return ListedGpuNodes(unread=GPU_NODES_REFUSED.format(user=self.viewer, option=_subject_option(self.viewer)))

    def refresh(self) -> None:
        """See `ObjectReader`."""
        self._reader.refresh()

    def outdated_seconds(self) -> float:
        """See `ObjectReader`."""
        return self._reader.outdated_seconds()

    def where(self) -> tuple[str, ...]:
        """See `ObjectReader`."""
        if self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return self._reader.where()
        names = tuple(self.objects().namespaces)
        return namespace_options(names if len(names) == 1 else ("NAMESPACE",))

    def no_jobs_reason(self) -> str:
        """See `ObjectReader`."""
        if self.objects().missing() or self._rights.may_list(self._viewer, ALL_NAMESPACES):
            return ""
        user = _subject_option(self._viewer.name)
        return (
            f"{self._viewer.name} may list recurringtrainingjobs and trainingrecurrences in no namespace that has any. "
            "The role view of a namespace has these rights; its administrator gives it by: "
            f"kubectl create rolebinding wattloop-viewer --clusterrole=view {user} --namespace NAMESPACE"
        )


def namespace_options(names: Sequence[str]) -> tuple[str, ...]:
    """The options by which kubectl lists a namespace; it lists one, or all.

    Example:
        >>> namespace_options(["team"]), namespace_options([])
        (('--namespace', 'team'), ('--all-namespaces',))
    """
    return ("--namespace", names[0]) if len(names) == 1 else ("--all-namespaces",)


def _subject_option(user: str) -> str:
    """The option by which kubectl binds a role to a user."""
    if user.startswith(SERVICE_ACCOUNT_PREFIX):
        return f"--serviceaccount={user.removeprefix(SERVICE_ACCOUNT_PREFIX)}"
    return f"--user={user}"
