"""Recorded readings of real GPUs: their counter is exact at the steps that readings every 5 to 10 ms show."""

import bisect
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

from wattloop.energy.gpu_reading import GpuReading

RECORDINGS = Path(__file__).parents[1] / "client" / "energy" / "recordings"
# Of an H200 (driver 580.159.04) by benchmarks/energy_counter.py, under a steady load and in bursts.
NAMES = ("h200_steady", "h200_burst")
AVERAGING_SECONDS = 1.0


class RecordedGpu:
    """A recording, and the energy by all of its readings.

    Attributes:
        steps: Time of each step of the counter, the middle of its bounds.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        with (RECORDINGS / f"{name}.csv").open(newline="") as stream:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]
        self.readings = [
            GpuReading(
                "GPU-1", row["begin_seconds"], row["end_seconds"], int(row["energy_millijoules"]), row["power_watts"]
            )
            for row in rows
        ]
        pairs = [
            ((before.begin_seconds + after.end_seconds) / 2, after.cumulative_millijoules / 1e3)
            for before, after in itertools.pairwise(self.readings)
            if after.energy_millijoules != before.energy_millijoules
        ]
        self.steps = [moment for moment, _ in pairs]
        self._joules = [joules for _, joules in pairs]

    def joules(self, begin_seconds: float, end_seconds: float) -> float:
        """Energy between two moments: exact at the steps, linear in between."""
        return self._joules_until(end_seconds) - self._joules_until(begin_seconds)

    def _joules_until(self, moment: float) -> float:
        after = min(max(bisect.bisect_right(self.steps, moment), 1), len(self.steps) - 1)
        share = (moment - self.steps[after - 1]) / (self.steps[after] - self.steps[after - 1])
        return self._joules[after - 1] + share * (self._joules[after] - self._joules[after - 1])

    def every(self, seconds: float, first: float = 0.0) -> Iterator[GpuReading]:
        """The readings of a reader with an interval."""
        due = first
        for reading in self.readings:
            if reading.begin_seconds >= due:
                yield reading
                due = max(due + seconds, reading.begin_seconds + seconds / 2)

    def mean_watts(self, moment: float) -> float:
        """The mean of the sensor over the second before a moment, as NVML reports power from Ampere on."""
        found = [
            reading.instant_watts or 0.0
            for reading in self.readings
            if moment - AVERAGING_SECONDS <= reading.begin_seconds <= moment
        ]
        return sum(found) / len(found)
