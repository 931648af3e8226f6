"""The energy that GPUs used between two readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wattloop_agent.monitor.gpu_readings import GpuStatus


@dataclass(frozen=True)
class GpuUsage:
    """The usage of one GPU since the command started.

    Attributes:
        now: Its current status.
        energy_joules: By its counter; None: it has none, or the counter was reset meanwhile.
        duration_seconds: On the clock that its energy is integrated on.
    """

    now: GpuStatus
    energy_joules: float | None
    duration_seconds: float

    @property
    def mean_power_watts(self) -> float | None:
        """Energy divided by duration; None if either is unknown."""
        if self.energy_joules is None or self.duration_seconds <= 0:
            return None
        return self.energy_joules / self.duration_seconds


def usage_between(begin: Sequence[GpuStatus], end: Sequence[GpuStatus]) -> list[GpuUsage]:
    """The usage of each GPU of the second reading since the first."""
    before = {status.uuid: status for status in begin}
    return [_usage(before.get(status.uuid, status), status) for status in end]


def _usage(begin: GpuStatus, end: GpuStatus) -> GpuUsage:
    energy = None
    if begin.energy_millijoules is not None and end.energy_millijoules is not None:
        energy = (end.energy_millijoules - begin.energy_millijoules) / 1000
    if energy is not None and energy < 0:
        energy = None
        end = replace(end, problem=end.problem or "its energy counter was reset during the measurement")
    return GpuUsage(end, energy, end.time_seconds - begin.time_seconds)
