"""One GPU's cumulative energy, that never falls: from its counter, over resets, or from its power."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from wattloop.energy import energy_of_power
from wattloop.node_energy import COUNTER, INTEGRATED, NodeGpu
from wattloop_agent.monitor.energy.counter_reset import GAP_SECONDS, CounterReset, PossibleReset, can_have_risen
from wattloop_agent.monitor.energy.counter_steps import CounterSteps
from wattloop_agent.monitor.energy.edges import Edges, interpolate_energy
from wattloop_agent.monitor.energy.gpu_sample import GpuSample
from wattloop_agent.monitor.energy.power_trace import Estimate, PowerTrace
from wattloop_agent.monitor.energy.snapshot import EnergySnapshot


class GpuAccount:
    """The energy of one GPU since the ledger began.

    What a counter has counted is exact. Since its last reading, and for moments between two readings, power tells how
    the energy was spread.

    Args:
        uuid: The GPU.
        product: Its model.

    Attributes:
        resets: How often its counter fell since the ledger began.

    Example:
        >>> account = GpuAccount("GPU-1", "A100")
        >>> for second in range(11):
        ...     account.add(GpuSample("GPU-1", "A100", second, second, second, None, 100.0))
        >>> account.now().energy_millijoules
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
        self._told = 0.0
        self._time = 0.0
        # The last sample, and the last of those that the energy is reckoned from: with a counter those that tell it.
        self._seen: GpuSample | None = None
        self._last: GpuSample | None = None
        self._shape = PowerTrace()
        self._steps = CounterSteps()
        self._edges = Edges()
        self._anew = CounterReset.NO

    def counter_began(self, anew: CounterReset) -> None:
        """Take note, before the next sample, of what is known of its counter's begin otherwise than by the counter."""
        self._anew = anew

    def add(self, sample: GpuSample) -> None:
        """Take a sample; samples come in order of time. One that tells neither counter nor power tells nothing."""
        seen = self._seen
        if seen is not None and sample.begin_seconds <= seen.begin_seconds:
            return
        tells_power = sample.power_watts is not None and not sample.problem
        if sample.counter_millijoules is None and not tells_power:
            return
        if tells_power and sample.power_watts is not None:
            self._shape.add(sample.begin_seconds, sample.clock_seconds, sample.power_watts)
        if sample.counter_millijoules is not None:
            self._count(sample, sample.counter_millijoules)
            self._last = sample
        elif self._source != COUNTER and sample.power_watts is not None:
            self._integrate(sample, sample.power_watts)
            self._last = sample
        # A clock that went back (another boot, simulated GPUs made anew) goes on from where it was.
        self._time += 0.0 if seen is None else max(sample.clock_seconds - seen.clock_seconds, 0.0)
        if seen is None:
            self._time = max(self._time, sample.clock_seconds)
        self._seen = sample

    def _count(self, sample: GpuSample, counter: int) -> None:
        last = self._last
        if last is None or last.counter_millijoules is None:
            self._source = COUNTER
            self._steps.stepped(sample)
            self._edges.add(sample.begin_seconds, sample.end_seconds, self._total)
        elif self._anew is CounterReset.YES or not can_have_risen(last, sample):
            self._reset(last, sample)
        elif counter > last.counter_millijoules:
            rise = counter - last.counter_millijoules
            self._total += rise
            if self._anew is CounterReset.PERHAPS:
                gap = PossibleReset.between(last, sample, self._shape)
                self._estimation_error += gap.missed_millijoules(rise, self._steps.longest_seconds)
            self._edges.add(self._steps.earliest(last, sample), sample.end_seconds, self._total)
            self._steps.stepped(sample)
        else:
            self._steps.stood(sample)
        self._anew = CounterReset.NO

    def _reset(self, last: GpuSample, sample: GpuSample) -> None:
        """The counter began anew: what it counts since is the least that was used, power over the gap an estimate."""
        self.resets += 1
        gap = PossibleReset.between(last, sample, self._shape)
        self._edges.forget()
        self._edges.add(last.begin_seconds, last.end_seconds, self._total)
        self._total += gap.used_millijoules
        self._estimation_error += gap.estimation_error_millijoules
        self._edges.add(sample.begin_seconds, sample.end_seconds, self._total)
        self._steps.stepped(sample)

    def _integrate(self, sample: GpuSample, power: float) -> None:
        last = self._last
        self._source = INTEGRATED
        if last is not None and last.power_watts is not None:
            ends = [(last.clock_seconds, last.power_watts), (max(sample.clock_seconds, last.clock_seconds), power)]
            used = energy_of_power(ends)
            self._total += used.joules * 1e3
            if ends[1][0] - ends[0][0] > GAP_SECONDS:
                self._estimation_error += used.joules * 1e3
            else:
                self._noise_square += (used.uncertainty_joules * 1e3) ** 2
        self._edges.add(sample.begin_seconds, sample.begin_seconds, self._total)

    def now(self) -> EnergySnapshot:
        """The account at the last sample."""
        since = self._since_counter()
        return EnergySnapshot(
            self._total + since.millijoules,
            self._lag() + since.uncertainty_millijoules,
            self._estimation_error,
            self._noise_square,
            self._time,
        )

    def mark_at(self, moment: float) -> EnergySnapshot:
        """The account at a moment of the monotonic clock, interpolated.

        Before the oldest edge that is kept it is that edge's, after the last sample the last sample's.
        """
        last, seen = self._last, self._seen
        if last is None or seen is None or not self._edges:
            return EnergySnapshot(self._total, 0.0, self._estimation_error, self._noise_square, self._time)
        points = self._edges.until(last, self._total)
        moment = max(moment, points[0].time_seconds)
        inside = min(moment, points[-1].time_seconds)
        energy, uncertainty = float(points[0].energy_millijoules), self._lag()
        if len(points) > 1:
            energy, uncertainty = interpolate_energy(points, inside, self._shape, self._lag())
        energy = min(energy, self._total)
        if moment > last.begin_seconds and self._source == COUNTER:
            since = self._shape.since(last.begin_seconds, moment)
            energy += since.millijoules
            uncertainty += since.uncertainty_millijoules + (self._lag() if since.millijoules else 0.0)
        unseen = self._power_milliwatts() * max(moment - seen.end_seconds, 0.0)
        time = self._time - min(max(seen.begin_seconds - moment, 0.0), self._time)
        return EnergySnapshot(energy, uncertainty + unseen, self._estimation_error, self._noise_square, time)

    def _since_counter(self) -> Estimate:
        """What was used since the counter was read, by power."""
        if self._last is None or self._source != COUNTER:
            return Estimate(0.0, 0.0)
        return self._shape.since(self._last.begin_seconds)

    def mark_before(self, moment: float) -> EnergySnapshot:
        """The account when it was last read before a moment, as far back as readings are kept."""
        edge = self._edges.known_at(moment)
        at = self.mark_at(moment)
        least = at.energy_millijoules if edge is None else min(edge.energy_millijoules, at.energy_millijoules)
        return dataclasses.replace(at, energy_millijoules=least)

    def oldest(self) -> EnergySnapshot:
        """The account as far back as edges are kept."""
        return self.mark_at(-math.inf)

    def _lag(self) -> float:
        """What may have been used since the counter's last step, in millijoules."""
        return (
            0.0 if self._source != COUNTER else self._power_milliwatts() * min(self._steps.longest_seconds, GAP_SECONDS)
        )

    def _power_milliwatts(self) -> float:
        if self._seen is not None and self._seen.power_watts is not None:
            return self._seen.power_watts * 1e3
        return self._edges.mean_milliwatts()

    def wire(self) -> NodeGpu:
        """The account as it is told: never less than it was told before, where that was an estimate."""
        now = self.now()
        self._told = max(self._told, now.energy_millijoules)
        over = self._told - now.energy_millijoules
        uncertainty = now.uncertainty_millijoules + over + self._estimation_error + math.sqrt(self._noise_square)
        return NodeGpu(
            uuid=self.uuid,
            product=self.product,
            energy_millijoules=int(self._told),
            uncertainty_millijoules=math.ceil(uncertainty),
            time_seconds=self._time,
            source=self._source or INTEGRATED,
        )

    def to_record(self) -> dict[str, Any]:
        """The account as JSON types."""
        last, seen = self._last, self._seen
        # Of the time when the counter was read: from there it goes on.
        later = 0.0 if last is None or seen is None else max(seen.clock_seconds - last.clock_seconds, 0.0)
        return {
            "uuid": self.uuid,
            "product": self.product,
            "source": self._source,
            "resets": self.resets,
            "total": self._total,
            "told": self._told,
            "doubt": self._estimation_error,
            "noise_square": self._noise_square,
            "time": self._time - later,
            "step": self._steps.longest_seconds,
            "last": None
            if last is None
            else [last.end_seconds, last.clock_seconds, last.counter_millijoules, last.power_watts],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any], *, same_boot: bool) -> GpuAccount:
        """The account of a record.

        Args:
            record: Of `to_record`.
            same_boot: Whether the clocks and the counter still are those of the record: then what the counter has
                counted since is the account's. In another boot it goes on from its first reading.

        Raises:
            KeyError: It is no such record.
            TypeError: Likewise.
            ValueError: Likewise.
        """
        account = GpuAccount(str(record["uuid"]), str(record["product"]))
        account._source = str(record["source"])
        account.resets = int(record["resets"])
        account._total = float(record["total"])
        # A record of an agent that told nothing but what counters had counted has no other.
        account._told = float(record.get("told", record["total"]))
        account._estimation_error = float(record["doubt"])
        account._noise_square = float(record["noise_square"])
        account._time = float(record["time"])
        if same_boot and record["last"] is not None:
            end, clock, counter, power = record["last"]
            account._steps.longest_seconds = float(record["step"])
            last = GpuSample(account.uuid, account.product, end, end, clock, counter, power)
            account._last = account._seen = last
            if power is not None:
                account._shape.add(end, clock, float(power))
            account._steps.stepped(last)
            account._edges.add(end, end, account._total)
        return account
