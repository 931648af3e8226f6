"""Reads the GPUNodes for the view of the GPUs, apart from the objects of the jobs: without them that is what it was.

They change every minute at most and are many, so they are read when that view is asked for, and in no version.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import GPU_NODES, Body, ClusterApi, NotFoundError, RejectedError
from wattloop_operator.memory_shares import MEBIBYTE
from wattloop_operator.page.shown_parts import ShownParts
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

READ_SECONDS = 30.0
REFUSED = (
    "{user} may not list gpunodes, which have all GPUs. An administrator gives the right: kubectl create clusterrole "
    "gpunodes --verb=get,list --resource=gpunodes.wattloop.dev; "
    "kubectl create clusterrolebinding gpunodes --clusterrole=gpunodes {option}"
)
MISSING = "The cluster does not have the kind GPUNode: install the definitions of this version."
TOO_LARGE = "All GPUs are not shown: GPUNodes take more than {mebibytes} MiB of the page's memory; give it more."
# In the log.
NOT_SHOWN = "GPUNodes are not shown"
UNREAD = "All GPUs are not shown: GPUNodes cannot be read now; the log of the page has the reason."


@dataclass(frozen=True)
class ListedGpuNodes:
    """The GPUNodes that a reader may list.

    Attributes:
        bodies: Their bodies.
        unread: Why they are missing; empty if they are not.
    """

    bodies: Sequence[Body] = ()
    unread: str = ""


class GpuNodeReader:
    """Lists the GPUNodes, every `READ_SECONDS` at most. Thread-safe.

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
        self._known: tuple[float, ListedGpuNodes] | None = None
        self._problems = ProblemLog(logger)

    def listed(self) -> ListedGpuNodes:
        """The GPUNodes as they were read last, or why they cannot be read; old ones are read again first."""
        # While another thread reads, what it read before is shown.
        if self._lock.acquire(blocking=self._known is None):
            try:
                if self._known is None or self._clock() - self._known[0] >= READ_SECONDS:
                    found = self._read()
                    self._known = self._clock(), found
            finally:
                self._lock.release()
        assert self._known is not None
        return self._known[1]

    def _read(self) -> ListedGpuNodes:
        parts = ShownParts(self._max_bytes)
        try:
            bodies, _ = self._api.list(GPU_NODES, part=parts.part)
        except RejectedError:
            return ListedGpuNodes(unread=REFUSED.format(user="The account of this page", option="--user=USER"))
        except NotFoundError:
            return ListedGpuNodes(unread=MISSING)
        except OperationError as error:
            self._problems.met(NOT_SHOWN, str(error))
            return ListedGpuNodes(unread=UNREAD)
        except Exception:  # the jobs are shown, whatever is wrong with GPUNodes
            logger.exception("unexpected failure while GPUNodes were read")
            return ListedGpuNodes(unread=UNREAD)
        self._problems.ended(NOT_SHOWN)
        if parts.too_large():
            return ListedGpuNodes(unread=TOO_LARGE.format(mebibytes=self._max_bytes // MEBIBYTE))
        return ListedGpuNodes(bodies)
