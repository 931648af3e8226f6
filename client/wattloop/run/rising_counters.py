"""Energy counters and clocks that never fall, from readings of GPUs whose counters may be reset."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from wattloop.energy.gpu_reading import GpuReading

logger = logging.getLogger("wattloop")


@dataclass
class _Counted:
    """What was counted of a GPU, and its counter and clock as they were read last."""

    millijoules: int
    seconds: float
    counter: int
    clock: float


class RisingCounters:
    """Continues the counter and the clock of each GPU after a fall.

    A GPU that is reset counts from zero. What it used between its last reading and the reset is in no
    counter. A value that is larger than the GPU can have used since is no such count, and adds nothing.

    Attributes:
        falls: Number of readings so far with a counter or a clock below the one before.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Counted] = {}
        self.falls = 0

    def rising(self, reading: GpuReading, max_watts: float) -> GpuReading:
        """The reading with a counter and a clock that are not below the GPU's previous ones.

        Args:
            reading: The next reading of a GPU.
            max_watts: The most power that the GPU can draw; 0 if it is not known.
        """
        counter, clock = reading.counter_millijoules, reading.clock_seconds
        known = self._gpus.get(reading.uuid)
        if known is None:
            self._gpus[reading.uuid] = _Counted(counter, clock, counter, clock)
            return reading
        seconds, millijoules = clock - known.clock, counter - known.counter
        if seconds < 0 or millijoules < 0:
            self._tell(reading, known)
        if millijoules < 0:
            millijoules = counter if counter <= 1000 * max_watts * seconds else 0
        known.seconds += max(seconds, 0.0)
        known.millijoules += millijoules
        known.counter, known.clock = counter, clock
        return reading._replace(energy_millijoules=known.millijoules, clock_seconds=known.seconds)

    def _tell(self, reading: GpuReading, known: _Counted) -> None:
        self.falls += 1
        if self.falls == 1:
            logger.warning(
                "GPU %s: its energy counter or clock fell, from %d mJ at %.3f s to %d mJ at %.3f s, as after a reset "
                "of the GPU; what it used in between may be missing in the energy of this run",
                reading.uuid, known.counter, known.clock, reading.counter_millijoules, reading.clock_seconds,
            )  # fmt: skip
