"""Reads the objects of a cluster for the live page: all that its credentials list.

GPUNodes change every minute at most and are many, so they are read when their view is asked for, and are in no version.
"""

import itertools
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from wattloop.errors import OperationError
from wattloop.threads import TaskThread
from wattloop_operator.cluster.api import GPU_NODES, Body, ClusterApi, NotFoundError, RejectedError, ResourceType
from wattloop_operator.cluster.auth.viewers import LISTED
from wattloop_operator.cluster.informer.object_store import parsed_bytes
from wattloop_operator.cluster.informer.stored_parts import own_part
from wattloop_operator.memory_shares import MEBIBYTE
from wattloop_operator.page.cluster_objects import ClusterObjects, ObjectChecks, namespace_objects
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

# An open page asks once a second; the API server is asked this often at most.
READ_SECONDS = 3.0
GPU_NODES_SECONDS = 30.0
# Of older objects a page says when they were read; a program waits for newer ones.
MAX_AGE_SECONDS = 10.0
OWN_REMEDY = "ask for the right, or name a namespace that you may read with -n"
REFUSED = "the page may not list it; its log has the reason"
TOO_LARGE_REMEDY = "delete jobs that are no longer needed, or lower their history limits"
UNEXPECTED = "the cluster cannot be read: an unexpected failure; see the log of the page"
GPU_NODES_REFUSED = (
    "{user} may not list gpunodes, which have all GPUs. An administrator gives the right: kubectl create clusterrole "
    "gpunodes --verb=get,list --resource=gpunodes.wattloop.dev; "
    "kubectl create clusterrolebinding gpunodes --clusterrole=gpunodes {option}"
)
GPU_NODES_MISSING = "The cluster does not have the kind GPUNode: install the definitions of this version."
GPU_NODES_TOO_LARGE = (
    "All GPUs are not shown: GPUNodes take more than {mebibytes} MiB of the page's memory; give it more."
)
# In the log.
GPU_NODES_NOT_SHOWN = "GPUNodes are not shown"
GPU_NODES_UNREAD = "All GPUs are not shown: GPUNodes cannot be read now; the log of the page has the reason."
# In place of each object beyond the bound: a list of them takes 8 bytes each.
OMITTED: Body = {}


class ShownParts:
    """Keeps the parts of objects while one reading of the cluster lists them.

    Args:
        namespace_bytes: Bytes of memory that the objects of a namespace may take.
    """

    def __init__(self, namespace_bytes: int) -> None:
        self._namespace_bytes = namespace_bytes
        self._taken: Counter[str] = Counter()

    def part(self, body: Body) -> Body:
        """What is kept of an object; `OMITTED` once its namespace is too large. "" has what is in none."""
        namespace = str(body["metadata"].get("namespace", ""))
        if self._taken[namespace] > self._namespace_bytes:
            return OMITTED
        kept = own_part(body)
        self._taken[namespace] += parsed_bytes(kept)
        return kept

    def too_large(self) -> tuple[str, ...]:
        """The namespaces whose objects take more, of which some are missing."""
        return tuple(name for name, taken in self._taken.items() if taken > self._namespace_bytes)


# Bodies of GPUNodes, and why they are missing; empty if they are not.
GpuNodeBodies = tuple[Sequence[Body], str]


class GpuNodeReader:
    """Lists the GPUNodes, every `GPU_NODES_SECONDS` at most. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
        max_bytes: Bytes of memory that they may take; more are not shown.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float], max_bytes: int) -> None:
        self._api = api
        self._clock = clock
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._known: tuple[float, GpuNodeBodies] | None = None
        self._problems = ProblemLog(logger)

    def listed(self) -> GpuNodeBodies:
        """The GPUNodes as they were read last, or why they cannot be read; old ones are read again first."""
        # While another thread reads, what it read before is shown.
        if self._lock.acquire(blocking=self._known is None):
            try:
                if self._known is None or self._clock() - self._known[0] >= GPU_NODES_SECONDS:
                    found = self._read()
                    self._known = self._clock(), found
            finally:
                self._lock.release()
        assert self._known is not None
        return self._known[1]

    def _read(self) -> GpuNodeBodies:
        parts = ShownParts(self._max_bytes)
        try:
            bodies, _ = self._api.list(GPU_NODES, part=parts.part)
        except RejectedError:
            return (), GPU_NODES_REFUSED.format(user="The account of this page", option="--user=USER")
        except NotFoundError:
            return (), GPU_NODES_MISSING
        except OperationError as error:
            self._problems.met(GPU_NODES_NOT_SHOWN, str(error))
            return (), GPU_NODES_UNREAD
        except Exception:  # the jobs are shown, whatever is wrong with GPUNodes
            logger.exception("unexpected failure while GPUNodes were read")
            return (), GPU_NODES_UNREAD
        self._problems.ended(GPU_NODES_NOT_SHOWN)
        if parts.too_large():
            return (), GPU_NODES_TOO_LARGE.format(mebibytes=self._max_bytes // MEBIBYTE)
        return bodies, ""


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
        gpu_nodes: Reads the GPUNodes.
        name: What is read.
        namespaces: The namespaces that are read; none: all.
        problems: Why something is not shown.
    """

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
        self.namespaces = tuple(namespaces)
        self._clock = clock
        self._remedy = remedy
        self._namespace_bytes = namespace_bytes
        self.gpu_nodes = GpuNodeReader(api, clock, namespace_bytes)
        self._lock = threading.Lock()
        self._reading: TaskThread | None = None
        self._checks = ObjectChecks()
        self.problems = ProblemLog(logger)
        self._known: tuple[float, ClusterObjects | OperationError] | None = None
        named = f"namespace {', '.join(namespaces)}" if namespaces else "all namespaces"
        self.name = f"{cluster}, {named}"

    def objects(self) -> ClusterObjects:
        """The objects, as they were read last; older ones are read again meanwhile.

        Raises:
            OperationError: They cannot be read.
        """
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

    def refresh(self) -> None:
        """Wait until the objects are not older than `MAX_AGE_SECONDS`."""
        with self._lock:
            self._await_reading(MAX_AGE_SECONDS)

    def outdated_seconds(self) -> float:
        """The age of objects that are older than that, in seconds; 0 of younger ones."""
        known = self._known
        age = 0.0 if known is None or isinstance(known[1], OperationError) else self._clock() - known[0]
        return age if age >= MAX_AGE_SECONDS else 0.0

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
        names = self.namespaces or ("",)
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
