"""Cumulative energy of one GPU, which never decreases: from its counter or from its power."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from wattloop.energy.energy_history import EnergyHistory, energy_at
from wattloop.energy.gpu_reading import GpuReading, IntegratedEnergy
from wattloop.energy.power_history import EnergyEstimate, PowerHistory, energy_of_power
from wattloop.wire.node_energy import COUNTER, INTEGRATED, NodeGpu
from wattloop_agent.monitor.energy.counter import GAP_SECONDS, CounterReset, CounterUpdates, ResetGap, can_have_risen
from wattloop_agent.monitor.energy.energy_snapshot import EnergySnapshot

# A hundred seconds at 10 Hz. For earlier times the counter readings alone must do.
MAX_POWERS = 1000
# From Ampere on, NVML reports the mean power of the last second.
AVERAGING_SECONDS = 1.0


class GpuAccount:
    """The energy of one GPU since the ledger began.

    Energy that a counter measured is exact. Power shows how the energy is spread between two counter readings, and
    estimates the energy since the last one. `resets` counts the resets of the counter since the ledger began.

    Example:
        >>> account = GpuAccount("GPU-1", "A100")
        >>> for second in range(11):
        ...     account.add(GpuReading("GPU-1", second, second, None, None, 100.0, clock_seconds=second))
        >>> account.snapshot().energy_millijoules
        1000000.0
    """

    def __init__(self, uuid: str, product: str) -> None:
        self.uuid = uuid
        self.product = product
        self.resets = 0
        self._source = ""
        self._total = 0.0
        self._estimation_error = 0.0
        self._noise_square = 0.0
        self._reported = 0.0
        self._time = 0.0
        self._last_sample: GpuReading | None = None
        # The last sample that changed the energy: if the GPU has a counter, the last one with a counter value.
        self._last_energy_sample: GpuReading | None = None
        self._power = PowerHistory(MAX_POWERS, AVERAGING_SECONDS)
        self._updates = CounterUpdates()
        self._history = EnergyHistory()
        self._reset = CounterReset.NO

    def expect_reset(self, reset: CounterReset) -> None:
        """Set, before the next sample, whether the counter was reset without showing it."""
        self._reset = reset

    def add(self, sample: GpuReading) -> None:
        """Add a sample; samples are in order of time.

        A sample with neither counter nor power is ignored.
        """
        last = self._last_sample
        if last is not None and sample.begin_seconds <= last.begin_seconds:
            return
        has_power = sample.power_watts is not None and not sample.problem
        if sample.energy_millijoules is None and not has_power:
            return
        if has_power and sample.power_watts is not None:
            self._power.add(sample.begin_seconds, sample.power_watts, sample.clock_seconds)
        if sample.energy_millijoules is not None:
            self._add_counter(sample, sample.energy_millijoules)
            self._last_energy_sample = sample
        elif self._source != COUNTER and sample.power_watts is not None:
            self._add_power(sample, sample.power_watts)
            self._last_energy_sample = sample
        # If the clock went back (another boot, or recreated simulated GPUs), time continues from where it was.
        self._time += 0.0 if last is None else max(sample.clock_seconds - last.clock_seconds, 0.0)
        if last is None:
            self._time = max(self._time, sample.clock_seconds)
        self._last_sample = sample

    def _add_counter(self, sample: GpuReading, counter: int) -> None:
        last = self._last_energy_sample
        if last is None or last.energy_millijoules is None:
            self._source = COUNTER
            self._updates.updated(sample)
            self._history.add(sample.begin_seconds, sample.end_seconds, self._total)
        elif self._reset is CounterReset.YES or not can_have_risen(last, sample):
            self._add_reset(last, sample)
        elif counter > last.energy_millijoules:
            rise = counter - last.energy_millijoules
            self._total += rise
            if self._reset is CounterReset.POSSIBLE:
                gap = ResetGap.between(last, sample, self._power)
                self._estimation_error += gap.missed_millijoules(rise, self._updates.period_seconds)
            self._history.add(self._updates.earliest_update(last, sample), sample.end_seconds, self._total)
            self._updates.updated(sample)
        else:
            self._updates.unchanged(sample)
        self._reset = CounterReset.NO

    def _add_reset(self, last: GpuReading, sample: GpuReading) -> None:
        self.resets += 1
        gap = ResetGap.between(last, sample, self._power)
        self._history.clear()
        self._history.add(last.begin_seconds, last.end_seconds, self._total)
        self._total += gap.used_millijoules
        self._estimation_error += gap.estimation_error_millijoules
        self._history.add(sample.begin_seconds, sample.end_seconds, self._total)
        self._updates.updated(sample)

    def _add_power(self, sample: GpuReading, power: float) -> None:
        last = self._last_energy_sample
        self._source = INTEGRATED
        if last is not None and last.power_watts is not None:
            ends = [(last.clock_seconds, last.power_watts), (max(sample.clock_seconds, last.clock_seconds), power)]
            used = energy_of_power(ends)
            self._total += used.joules * 1e3
            if ends[1][0] - ends[0][0] > GAP_SECONDS:
                self._estimation_error += used.joules * 1e3
            else:
                self._noise_square += (used.uncertainty_joules * 1e3) ** 2
        self._history.add(sample.begin_seconds, sample.begin_seconds, self._total)

    def snapshot(self) -> EnergySnapshot:
        """Return the account at the last sample."""
        since = self._since_counter()
        return EnergySnapshot(
            self._total + since.joules * 1e3,
            self._lag() + since.uncertainty_joules * 1e3,
            self._estimation_error,
            self._noise_square,
            self._time,
        )

    def snapshot_at(self, moment: float) -> EnergySnapshot:
        """Return the account at a moment of the monotonic clock, interpolated.

        A moment before the oldest stored edge gives that edge, a moment after the last sample that sample.
        """
        last, last_sample = self._last_energy_sample, self._last_sample
        if last is None or last_sample is None or not self._history:
            return EnergySnapshot(self._total, 0.0, self._estimation_error, self._noise_square, self._time)
        edges = self._history.edges(last, self._total)
        moment = max(moment, edges[0].time_seconds)
        inside = min(moment, edges[-1].time_seconds)
        energy, uncertainty = float(edges[0].energy_millijoules), self._lag()
        if len(edges) > 1:
            found = energy_at(edges, inside, self._power, self._lag() / 1e3)
            energy, uncertainty = found.joules * 1e3, found.uncertainty_joules * 1e3
        energy = min(energy, self._total)
        if moment > last.begin_seconds and self._source == COUNTER:
            since = self._power.energy_between(last.begin_seconds, moment)
            energy += since.joules * 1e3
            uncertainty += since.uncertainty_joules * 1e3 + (self._lag() if since.joules else 0.0)
        not_sampled = self._power_milliwatts() * max(moment - last_sample.end_seconds, 0.0)
        time = self._time - min(max(last_sample.begin_seconds - moment, 0.0), self._time)
        return EnergySnapshot(energy, uncertainty + not_sampled, self._estimation_error, self._noise_square, time)

    def _since_counter(self) -> EnergyEstimate:
        """Return the energy since the last counter reading, estimated from power."""
        if self._last_energy_sample is None or self._source != COUNTER:
            return EnergyEstimate(0.0, 0.0)
        return self._power.energy_between(self._last_energy_sample.begin_seconds, math.inf)

    def snapshot_before(self, moment: float) -> EnergySnapshot:
        """Return the account at its last stored reading before a moment."""
        edge = self._history.last_edge_before(moment)
        at = self.snapshot_at(moment)
        energy = at.energy_millijoules if edge is None else min(edge.energy_millijoules, at.energy_millijoules)
        return dataclasses.replace(at, energy_millijoules=energy)

    def oldest_snapshot(self) -> EnergySnapshot:
        """Return the account as far back as edges are stored."""
        return self.snapshot_at(-math.inf)

    def _lag(self) -> float:
        """Return the millijoules that may have been used since the counter's last update."""
        if self._source != COUNTER:
            return 0.0
        return self._power_milliwatts() * min(self._updates.period_seconds, GAP_SECONDS)

    def _power_milliwatts(self) -> float:
        if self._last_sample is not None and self._last_sample.power_watts is not None:
            return self._last_sample.power_watts * 1e3
        return self._history.mean_watts() * 1e3

    def integrated(self) -> IntegratedEnergy | None:
        """Return the integral of power at the last sample; None with a counter, or without samples."""
        if self._source != INTEGRATED:
            return None
        return IntegratedEnergy(int(self._total), self._estimation_error, self._noise_square)

    def to_wire(self) -> NodeGpu:
        """Return the account as it is reported: never below the value reported before."""
        now = self.snapshot()
        self._reported = max(self._reported, now.energy_millijoules)
        excess = self._reported - now.energy_millijoules
        uncertainty = now.uncertainty_millijoules + excess + self._estimation_error + math.sqrt(self._noise_square)
        return NodeGpu(
            uuid=self.uuid,
            product=self.product,
            energy_millijoules=int(self._reported),
            uncertainty_millijoules=math.ceil(uncertainty),
            time_seconds=self._time,
            source=self._source or INTEGRATED,
        )

    def to_record(self) -> dict[str, Any]:
        """Return the account as JSON types."""
        last, last_sample = self._last_energy_sample, self._last_sample
        # The record is of the last counter reading, from which the next process continues.
        later = 0.0
        if last is not None and last_sample is not None:
            later = max(last_sample.clock_seconds - last.clock_seconds, 0.0)
        return {
            "uuid": self.uuid,
            "product": self.product,
            "source": self._source,
            "resets": self.resets,
            "total": self._total,
            "reported": self._reported,
            "estimation_error": self._estimation_error,
            "noise_square": self._noise_square,
            "time": self._time - later,
            "update_period": self._updates.period_seconds,
            "last": None
            if last is None
            else [last.end_seconds, last.clock_seconds, last.energy_millijoules, last.power_watts],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any], *, same_boot: bool) -> GpuAccount:
        """Return the account of a record.

        Args:
            record: Result of `to_record`.
            same_boot: Whether clocks and counter are still those of the record. If so, the counter's rise since then
                belongs to the account; after a reboot the account continues from the counter's first reading.

        Raises:
            KeyError, TypeError, ValueError: The record is invalid.
        """
        account = GpuAccount(str(record["uuid"]), str(record["product"]))
        account._source = str(record["source"])
        account.resets = int(record["resets"])
        account._total = float(record["total"])
        account._reported = float(record["reported"])
        account._estimation_error = float(record["estimation_error"])
        account._noise_square = float(record["noise_square"])
        account._time = float(record["time"])
        if same_boot and record["last"] is not None:
            end, clock, counter, power = record["last"]
            account._updates.period_seconds = float(record["update_period"])
            last = GpuReading(account.uuid, end, end, counter, None, power, clock, account.product)
            account._last_energy_sample = account._last_sample = last
            if power is not None:
                account._power.add(end, float(power), clock)
            account._updates.updated(last)
            account._history.add(end, end, account._total)
        return account
