"""Energy counters and clocks that never fall, from readings of GPUs whose counters may be reset."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from wattloop.energy.gpu_reading import GpuReading, IntegratedEnergy

logger = logging.getLogger("wattloop")


@dataclass
class _Counted:
    """What was counted of a GPU, and its last reading."""

    millijoules: int
    seconds: float
    lost_millijoules: float
    last: GpuReading


class RisingCounters:
    """Continues the energy and the clock of each GPU after a fall.

    A GPU that is reset counts from zero, and all GPUs do when the driver is loaded again, which readings tell by
    another `counter`. What a GPU used between its last reading and the reset is in no counter; `lost_millijoules`
    bounds it. A value that is larger than the GPU can have used since is no such count, and adds nothing.
    The same holds of energy that an agent integrates, if the agent begins again.

    Attributes:
        falls: Number of readings so far with an energy or a clock below the one before, or of another counter.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Counted] = {}
        self.falls = 0

    def lost_millijoules(self, uuid: str) -> float:
        """Bound of what a GPU used while its counter was reset, beyond what was counted; 0 if it was not."""
        known = self._gpus.get(uuid)
        return 0.0 if known is None else known.lost_millijoules

    def rising(self, reading: GpuReading, max_watts: float) -> GpuReading:
        """The reading with an energy and a clock that are not below the GPU's previous ones.

        Args:
            reading: The next reading of a GPU.
            max_watts: The most power that the GPU can draw; 0 if it is not known.
        """
        energy, clock = reading.cumulative_millijoules, reading.clock_seconds
        known = self._gpus.get(reading.uuid)
        if known is None:
            self._gpus[reading.uuid] = _Counted(energy, clock, 0.0, reading)
            return reading
        last = known.last
        seconds, millijoules = clock - last.clock_seconds, energy - last.cumulative_millijoules
        began_again = millijoules < 0 or reading.counter != last.counter
        if seconds < 0 or began_again:
            self._tell(reading, last)
        if began_again:
            possible = 1000 * max_watts * max(seconds, 0.0)
            millijoules = energy if energy <= possible else 0
            known.lost_millijoules += possible - millijoules
            if last.integrated is not None and reading.integrated is not None:
                # Its errors begin again, too.
                known.lost_millijoules += last.integrated.uncertainty_since(IntegratedEnergy(0, 0.0, 0.0))
        known.seconds += max(seconds, 0.0)
        known.millijoules += millijoules
        known.last = reading
        if reading.integrated is None:
            return reading._replace(energy_millijoules=known.millijoules, clock_seconds=known.seconds)
        error = reading.integrated.estimation_error_millijoules + known.lost_millijoules
        integrated = replace(
            reading.integrated, energy_millijoules=known.millijoules, estimation_error_millijoules=error
        )
        return reading._replace(integrated=integrated, clock_seconds=known.seconds)

    def _tell(self, reading: GpuReading, last: GpuReading) -> None:
        self.falls += 1
        if self.falls == 1:
            logger.warning(
                "GPU %s: its counter began again, from %d mJ at %.3f s to %d mJ at %.3f s, as after a reset of the "
                "GPU or a reload of the driver; what it used in between may be missing in the energy of this run",
                reading.uuid, last.cumulative_millijoules, last.clock_seconds, reading.cumulative_millijoules,
                reading.clock_seconds,
            )  # fmt: skip
