"""GPUNodes at the API server: what agents report of all GPUs of their nodes.

Every replica answers agents, so each one writes the nodes that report to it. A GPUNode is owned by its Node, so the
API server's garbage collector deletes it with that. A thread writes: an agent never waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import NodeReport
from wattloop_operator.api.gpu_node import GPUNode, GPUNodeStatus
from wattloop_operator.api.meta import ObjectMeta, OwnerReference
from wattloop_operator.cluster.api import (
    GPU_NODES,
    NODES,
    AlreadyExistsError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
)
from wattloop_operator.cluster.api_transport import UnreadableResponseError
from wattloop_operator.periodic_thread import PeriodicThread
from wattloop_operator.reconcile.energy.gpu_node_status import (
    MAX_AGE,
    WRITE_INTERVAL,
    Readings,
    gpu_node_status,
    is_newer,
    must_be_written,
    readings_of,
)

MAX_NODES = 20_000
# Twice the longest interval of an agent's reports (--push-interval).
KNOWN_SECONDS = 7200.0
# However many nodes there are, a replica sends the API server no more.
MAX_WRITES_PER_SECOND = 20

logger = logging.getLogger(__name__)


@dataclass
class _Node:
    """What is known of a node.

    Attributes:
        ledger: The ledger of its latest report.
        readings: The readings of that report.
        taken_at: When that report came.
        written: The status that was written last; None if none was, or the last write failed.
        failed_at: When a write failed last; None if none has.
    """

    ledger: str
    readings: Readings
    taken_at: datetime
    written: GPUNodeStatus | None = None
    failed_at: datetime | None = None


class GpuNodeWriter:
    """Takes the reports of agents, and writes the GPUNodes that are due. Thread-safe.

    Args:
        utc_now: The time, with a time zone.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, utc_now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._api = api
        self._utc_now = utc_now
        self._lock = threading.Lock()
        self._nodes: TTLCache[str, _Node] = TTLCache(MAX_NODES, KNOWN_SECONDS, clock)
        # In the order in which they became due.
        self._due: dict[str, GPUNodeStatus] = {}
        self._problem = ""

    def receive(self, report: NodeReport) -> None:
        """Take a report of the node's authorized agent; only remembers it."""
        now = self._utc_now()
        with self._lock:
            before = self._nodes.get(report.node)
            readings = before.readings if before is not None and before.ledger == report.ledger else {}
            # After so long without newer readings the power is not known. An agent that starts has no GPUs yet.
            max_age = MAX_AGE if report.gpus else WRITE_INTERVAL
            if before is not None and not is_newer(readings, report) and now - before.taken_at < max_age:
                return
            node = _Node(report.ledger, readings_of(report), now)
            if before is not None:
                node.written, node.failed_at = before.written, before.failed_at
            self._nodes[report.node] = node
            # GPUs without readings before have no power: the next report has it. A first report has no GPUs while its
            # agent starts.
            if readings or (before is not None and not report.gpus):
                status = gpu_node_status(readings, report, now)
                has_failed = node.failed_at is not None and now - node.failed_at < WRITE_INTERVAL
                if not has_failed and (report.node in self._due or must_be_written(node.written, status, now)):
                    self._due[report.node] = status

    def write_due(self) -> None:
        """Write the statuses that are due, `MAX_WRITES_PER_SECOND` at most; it is called once a second."""
        with self._lock:
            names = list(self._due)[:MAX_WRITES_PER_SECOND]
            due = {name: self._due.pop(name) for name in names}
        for node, status in due.items():
            self._try(node, status)

    def thread(self) -> PeriodicThread:
        """A context manager that calls `write_due` once a second."""
        return PeriodicThread(self.write_due, "gpu-nodes", 1.0)

    def _try(self, node: str, status: GPUNodeStatus) -> None:
        has_failed = True
        try:
            self._write(node, status)
            has_failed = False
            self._log("")
        except (OperationError, RejectedError, ConflictError, NotFoundError, UnreadableResponseError) as error:
            self._log(f"{type(error).__name__}: {error}")
        except Exception:  # what is wrong with one node must not end the thread
            logger.exception("unexpected failure while the GPUNode %s was written; retrying", node)
        with self._lock:
            known = self._nodes.get(node)
            if known is not None:
                known.written = None if has_failed else status
                known.failed_at = self._utc_now() if has_failed else None

    def _write(self, node: str, status: GPUNodeStatus) -> None:
        body = {**GPUNode(metadata=ObjectMeta(name=node)).to_wire(), "status": status.to_wire()}
        try:
            self._api.apply_status(GPU_NODES, body)
        except NotFoundError:
            if not status.gpus:
                # A node that never had GPUs.
                return
            self._create(node)
            self._api.apply_status(GPU_NODES, body)

    def _create(self, node: str) -> None:
        uid = str(self._api.get(NODES, "", node)["metadata"]["uid"])
        owner = OwnerReference(api_version=NODES.api_version, kind=NODES.kind, name=node, uid=uid)
        body = GPUNode(metadata=ObjectMeta(name=node, owner_references=(owner,))).to_wire()
        body.pop("status", None)
        try:
            self._api.create(GPU_NODES, body)
        except AlreadyExistsError:
            # Another replica has made it meanwhile.
            return

    def _log(self, problem: str) -> None:
        # All nodes have the same problem, as a missing right; it is logged when it begins.
        if problem and not self._problem:
            logger.warning("GPUNodes are not up to date: %s", problem)
        self._problem = problem
