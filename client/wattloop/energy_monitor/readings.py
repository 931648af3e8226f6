"""What a sampler reads, and the interface to its sources."""

import bisect
import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wattloop.energy.gpu_reading import GpuReading, OtherUse

# Coprime to 100 ms, the period of many counters, so that readings fall on all parts of the period.
INTERVAL_SECONDS = 0.067
MAX_READINGS = 8192


@dataclass(frozen=True)
class Readings:
    """One sample.

    Attributes:
        gpus: The GPUs that answered.
        processor_seconds: System monotonic clock when the processors were read.
        processor_joules: Cumulative energy by RAPL zone (``package-0``, ``package-0/dram``); empty if not
            read.
    """

    gpus: Sequence[GpuReading] = ()
    processor_seconds: float = 0.0
    processor_joules: Mapping[str, float] = field(default_factory=dict)


class ReadingSource(Protocol):
    """A source of readings: the agent's stream, or NVML in this process. Used by one thread."""

    def open(self) -> Sequence[str]:
        """Open the source and return the UUIDs of the process's GPUs, in the order of CUDA's indices.

        Raises:
            OperationError: The source is not available; the text says why.
        """

    def read(self, uuids: Sequence[str]) -> Readings:
        """Wait for the next sample of some GPUs and return it.

        Raises:
            WattloopError: The source failed. Opening it again may help.
        """

    def close(self) -> None:
        """Close the source; it may be opened again."""


class ProcessorEnergy:
    """The energy of one RAPL zone over time, interpolated between readings.

    Example:
        >>> energy = ProcessorEnergy()
        >>> for second in range(4):
        ...     energy.add(second, 50.0 * second)
        >>> energy.at(2.5) - energy.at(0.5)
        100.0
    """

    def __init__(self) -> None:
        self._moments = array("d")
        self._joules = array("d")

    def add(self, moment_seconds: float, joules: float) -> None:
        """Add a reading; one that is not later than the last is ignored. A decrease begins a new series."""
        if self._moments and moment_seconds <= self._moments[-1]:
            return
        if self._joules and joules < self._joules[-1]:
            del self._moments[:], self._joules[:]
        for column, value in ((self._moments, moment_seconds), (self._joules, joules)):
            column.append(value)
            if len(column) >= 2 * MAX_READINGS:
                del column[:-MAX_READINGS]

    def at(self, moment_seconds: float) -> float | None:
        """The energy until a moment; None if fewer than two readings exist.

        The power of the first and the last two readings is extrapolated.
        """
        if len(self._moments) < 2:
            return None
        after = min(max(bisect.bisect_right(self._moments, moment_seconds), 1), len(self._moments) - 1)
        begin, end = self._moments[after - 1], self._moments[after]
        power = (self._joules[after] - self._joules[after - 1]) / (end - begin)
        return self._joules[after - 1] + power * (moment_seconds - begin)


logger = logging.getLogger("wattloop")

# Others are looked for once a second, so those that were seen at a time may have come or gone within one.
MARGIN_SECONDS = 1.0
MAX_INTERVALS = 4096


class OthersTimeline:
    """The intervals in which others used one GPU. It says so once.

    Example:
        >>> timeline = OthersTimeline("GPU-1")
        >>> timeline.add(OtherUse())
        >>> timeline.between(0.0, 9.0)
        False
        >>> timeline.add(OtherUse(unknown="no permission"))
        >>> timeline.between(0.0, 9.0) is None
        True
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        # Begin and end of each interval, by rising time.
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._unknown = ""

    def add(self, others: OtherUse) -> None:
        """Add what a reading says."""
        if others.unknown and not self._unknown:
            self._unknown = others.unknown
            logger.warning("GPU %s: whether others use it, too, is not known: %s", self._uuid, others.unknown)
        seen = others.seen_seconds
        if seen is None:
            return
        if not self._ends:
            text = "GPU %s is used by others, too (%s): the energy of a window meanwhile is an upper bound"
            logger.warning(text, self._uuid, others.seen)
        if self._ends and seen - MARGIN_SECONDS <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], seen + MARGIN_SECONDS)
            return
        self._begins.append(seen - MARGIN_SECONDS)
        self._ends.append(seen + MARGIN_SECONDS)
        del self._begins[:-MAX_INTERVALS], self._ends[:-MAX_INTERVALS]

    def between(self, begin_seconds: float, end_seconds: float) -> bool | None:
        """Whether others used the GPU between two moments; None if that is not known."""
        first = bisect.bisect_left(self._ends, begin_seconds)
        if first < len(self._begins) and self._begins[first] <= end_seconds:
            return True
        return None if self._unknown else False
