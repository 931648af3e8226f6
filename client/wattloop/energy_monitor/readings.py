"""What a sampler reads, and the interface to its sources."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wattloop.energy.gpu_reading import GpuReading

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
