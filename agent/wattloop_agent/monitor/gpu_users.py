"""Whether processes of others use the GPUs of a caller: the energy of a GPU is then not the caller's alone.

The driver's list of processes is read once a second, and at a caller's first request. A process that uses a GPU for
less than a second, between two lists, is not seen.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wattloop.energy.gpu_reading import OtherUse
from wattloop.gpus.gpu_processes import text_of
from wattloop_agent.monitor.identity import Authenticator

CHECK_SECONDS = 1.0
# The timers of two threads differ.
EARLY_FRACTION = 0.2
# Callers that are looked after; the one that asked longest ago gives way.
MAX_CALLERS = 256


@dataclass(frozen=True)
class GpuProcessList:
    """The driver's list of the processes with a compute context on a GPU.

    Attributes:
        pids: Their ids.
        problem: Why the driver does not tell them; empty if it does.
        is_complete: Whether these are those of the whole machine.
    """

    pids: tuple[int, ...] = ()
    problem: str = ""
    is_complete: bool = False


@dataclass(frozen=True)
class ListedGpus:
    """The lists of all GPUs, by uuid, and when they were read, on the monotonic clock."""

    read_seconds: float
    lists: Mapping[str, GpuProcessList] = field(default_factory=dict)


class GpuUsers:
    """Remembers when processes of others were last seen on each GPU, for each caller.

    Args:
        read: Reads the lists of all GPUs; called in the driver's thread.
        relations: Tells which processes are a caller's own.
        clock: The monotonic clock.

    Attributes:
        listed: The lists that were read last.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, GpuProcessList]],
        relations: Authenticator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._relations = relations
        self._clock = clock
        self._lock = threading.Lock()
        self._callers: OrderedDict[str, dict[str, OtherUse]] = OrderedDict()
        self.listed = ListedGpus(float("-inf"))

    def check(self) -> None:
        """Read the lists if that is due, and look for others on behalf of each caller; in the driver's thread."""
        if self._clock() < self.listed.read_seconds + CHECK_SECONDS * (1 - EARLY_FRACTION):
            return
        self.listed = ListedGpus(self._clock(), self._read())
        with self._lock:
            owners = list(self._callers)
        for owner in owners:
            self._look(owner)

    def begin(self, owner: str) -> None:
        """Look for others on behalf of a caller from now on; in the driver's thread."""
        self.check()
        with self._lock:
            is_new = owner not in self._callers
            self._callers.setdefault(owner, {})
            self._callers.move_to_end(owner)
            while len(self._callers) > MAX_CALLERS:
                self._callers.popitem(last=False)
        if is_new:
            self._look(owner)

    def others(self, owner: str, uuid: str) -> OtherUse:
        """What is known of others on a GPU of a caller; from any thread."""
        with self._lock:
            return self._callers.get(owner, {}).get(uuid, NOT_LISTED)

    def _look(self, owner: str) -> None:
        found = {uuid: self._use(owner, each) for uuid, each in self.listed.lists.items()}
        with self._lock:
            before = self._callers.get(owner)
            if before is None:
                return
            for uuid, use in found.items():
                known = before.get(uuid, use)
                is_seen = use.seen_seconds is not None
                before[uuid] = use if is_seen else OtherUse(known.seen_seconds, known.seen, use.unknown)

    def _use(self, owner: str, listed: GpuProcessList) -> OtherUse:
        if listed.problem:
            return OtherUse(unknown=listed.problem)
        names, unknown = self._relations.others(owner, listed.pids, is_complete=listed.is_complete)
        return OtherUse(self.listed.read_seconds if names else None, text_of(names), unknown)


NOT_LISTED = OtherUse(unknown="the driver has not listed the processes on it")
