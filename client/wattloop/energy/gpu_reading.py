"""One reading of a GPU, as the agent and the training process take it."""

from __future__ import annotations

from typing import NamedTuple


class GpuReading(NamedTuple):
    """One reading of a GPU; a tuple, since each sampling makes one for each GPU.

    Attributes:
        uuid: The GPU.
        begin_seconds: System monotonic clock just before the call of the counter.
        end_seconds: The same just after.
        energy_millijoules: The counter; None if it was not read, or the GPU has none.
        instant_watts: The last value of the power sensor just after the call of the counter, not averaged if
            possible; None if not read or not reported.
        power_watts: Power draw as NVML reports it, from Ampere on the mean of the last second; None if not read or
            not reported.
        clock_seconds: Clock over which energy is integrated: the system's, or the simulator's.
        product: The GPU's model; empty if not read.
        problem: Why a value that the GPU otherwise reports is missing; empty if none is.
    """

    uuid: str
    begin_seconds: float
    end_seconds: float
    energy_millijoules: int | None
    instant_watts: float | None
    power_watts: float | None = None
    clock_seconds: float = 0.0
    product: str = ""
    problem: str = ""

    @property
    def counter_millijoules(self) -> int:
        """The counter of a reading that has one."""
        assert self.energy_millijoules is not None, "the reading has a counter"
        return self.energy_millijoules
