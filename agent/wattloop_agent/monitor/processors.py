"""The energy of processors and memory, for subscribers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from wattloop.gpus.rapl import POWERCAP, Rapl

# Linux lets only root read RAPL, since readings at a high rate reveal what programs compute
# (CVE-2020-8694). Ten a second, of all programs of the node together, suffice for energy.
INTERVAL_SECONDS = 0.1


class ProcessorMeter:
    """Reads RAPL at most every `INTERVAL_SECONDS`, however many subscribers there are.

    Args:
        folder: Folder of the zones.
        clock: The monotonic clock.
    """

    def __init__(self, folder: Path = POWERCAP, clock: Callable[[], float] = time.monotonic) -> None:
        self._rapl = Rapl(folder)
        self._clock = clock
        self._read_seconds = clock()

    def joules(self) -> tuple[float, Mapping[str, float]]:
        """The time of the last reading, and the energy until then by zone, since this object exists."""
        now = self._clock()
        if now >= self._read_seconds + INTERVAL_SECONDS:
            self._rapl.read()
            self._read_seconds = now
        return self._read_seconds, self._rapl.joules()
