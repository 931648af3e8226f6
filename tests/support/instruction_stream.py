"""A rank of a 1F1B pipeline on a GPU of known power, and an energy counter that advances in steps."""

from __future__ import annotations

import bisect
import itertools
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wattloop.energy.energy_timeline import CounterEdge, EnergyTimeline
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy_monitor.readings import INTERVAL_SECONDS
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import Directive

CALL_SECONDS = 0.0035
OPTIMIZER_SECONDS = 0.06
OPTIMIZER_WATTS = 210.0


@dataclass(frozen=True)
class RankOfPipeline:
    """What the rank does.

    Attributes:
        stages: Number of stages, with one rank each.
        seconds: Time of an instruction, by kind.
        watts: Power of an instruction, by kind.
        noise: Relative standard deviation of each time, and of each power.
    """

    stage: int = 1
    stages: int = 4
    microbatches: int = 16
    seconds: Mapping[str, float] = field(default_factory=lambda: {"forward": 0.05, "backward": 0.1})
    watts: Mapping[str, float] = field(default_factory=lambda: {"forward": 300.0, "backward": 380.0})
    blocking_watts: float = 90.0
    noise: float = 0.02

    def at(self, megahertz: int, highest: int = 1410) -> RankOfPipeline:
        """The same at a clock: times rise, and powers fall with its square."""
        share = megahertz / highest
        return replace(
            self,
            seconds={kind: value * (0.4 + 0.6 / share) for kind, value in self.seconds.items()},
            watts={kind: 90.0 + (value - 90.0) * share**2.4 for kind, value in self.watts.items()},
        )

    @property
    def order(self) -> list[str]:
        """Kinds of the instructions of an iteration in the order of 1F1B."""
        ahead = min(self.stages - self.stage - 1, self.microbatches)
        pairs = self.microbatches - ahead
        return ["forward"] * ahead + ["forward", "backward"] * pairs + ["backward"] * ahead

    def joules(self, kind: str) -> float:
        """Energy of an instruction."""
        return self.watts[kind] * self.seconds[kind]


class PowerTrace:
    """Power over time, constant in parts, and its exact integral."""

    def __init__(self) -> None:
        self._moments, self._joules, self._watts = [0.0], [0.0], [0.0]

    @property
    def now(self) -> float:
        return self._moments[-1]

    def add(self, seconds: float, watts: float) -> None:
        """Go on with a power for so long."""
        self._watts[-1] = watts
        self._moments.append(self.now + seconds)
        self._joules.append(self._joules[-1] + seconds * watts)
        self._watts.append(0.0)

    def joules_until(self, moment: float) -> float:
        """The exact energy until a moment."""
        index = max(bisect.bisect_right(self._moments, moment) - 1, 0)
        return self._joules[index] + self._watts[index] * (moment - self._moments[index])


class SyntheticGpu:
    """A GPU that runs iterations, and whose counter is then read.

    Args:
        seed: Of the noise, the counter's phase, and the moments of the readings.
        trace: Power of another GPU that does the same work; default: its own.
    """

    def __init__(self, seed: int, trace: PowerTrace | None = None) -> None:
        self.random = random.Random(seed)
        self.trace = PowerTrace() if trace is None else trace
        if trace is None:
            self.trace.add(0.5, 60.0)

    def run(
        self,
        rank: RankOfPipeline,
        number: int,
        megahertz: int = 1410,
        pause_seconds: float = 0.0,
        directive: Directive | None = None,
    ) -> IterationRecord:
        """One iteration.

        Args:
            pause_seconds: A pause within one of the instructions.
            directive: The directive in the record; default: free clocks.
        """
        begin = self.trace.now
        ahead = min(rank.stages - rank.stage - 1, rank.microbatches)
        # Other stages' forwards come first, and the first gradient comes from the last stage.
        self._wait(rank, rank.stage * rank.seconds["forward"])
        order = rank.order
        paused = self.random.randrange(len(order)) if pause_seconds else None
        instructions, stamps, counts = [], array("d"), dict.fromkeys(order, 0)
        for position, kind in enumerate(order):
            if position == ahead + 1:
                self._wait(rank, ahead * sum(rank.seconds.values()))
            elif position >= len(order) - ahead:
                self._wait(rank, rank.seconds["forward"])
            else:
                self._wait(rank, 0.03 * rank.seconds["forward"])
            start = self.trace.now
            self.trace.add(rank.seconds[kind] * self._noisy(rank), rank.watts[kind] * self._noisy(rank))
            if position == paused:
                self.trace.add(pause_seconds, 70.0)
            stamps.extend((start, self.trace.now))
            instructions.append(Instruction(kind, rank.stage, counts[kind]))
            counts[kind] += 1
        self.trace.add(OPTIMIZER_SECONDS, OPTIMIZER_WATTS)
        clocks = (megahertz,) * len(order) if megahertz else ()
        return IterationRecord(
            number, directive or Directive(), tuple(instructions), clocks, begin, self.trace.now, stamps
        )

    def _wait(self, rank: RankOfPipeline, seconds: float) -> None:
        if seconds:
            self.trace.add(seconds * self.random.uniform(0.9, 1.1), rank.blocking_watts * self._noisy(rank))

    def _noisy(self, rank: RankOfPipeline) -> float:
        return 1 + self.random.gauss(0.0, rank.noise)

    def timeline(self, **counter: float) -> EnergyTimeline:
        """The energy by the readings until now."""
        timeline, reader = EnergyTimeline(), CounterReader(self, **counter)
        self.trace.add(0.4, 60.0)
        for reading in reader.new():
            timeline.add(reading)
        return timeline


class CounterReader:
    """Reads the counter of a GPU as the monitor's thread does.

    Args:
        period_seconds: Time between two steps of the counter.
        jitter_seconds: Largest deviation of a step from the period.
    """

    def __init__(self, gpu: SyntheticGpu, period_seconds: float = 0.1, jitter_seconds: float = 0.0) -> None:
        self._gpu = gpu
        self._period_seconds = period_seconds
        self._jitter_seconds = jitter_seconds
        self._steps = [gpu.random.uniform(0.0, period_seconds)]
        self._phase_seconds = self._steps[0]
        self._next_seconds = gpu.random.uniform(0.0, INTERVAL_SECONDS)

    def new(self) -> Iterator[GpuReading]:
        """The readings since the last call."""
        rng = self._gpu.random
        while self._next_seconds < self._gpu.trace.now - 2 * CALL_SECONDS:
            now = self._next_seconds
            duration = CALL_SECONDS * rng.uniform(0.5, 1.5)
            yield GpuReading("GPU-1", now, now + duration, self._value(now + duration * rng.random()), None)
            self._next_seconds += INTERVAL_SECONDS * rng.uniform(0.98, 1.02)

    def _value(self, moment: float) -> int:
        while self._steps[-1] <= moment:
            jitter = self._gpu.random.uniform(-self._jitter_seconds, self._jitter_seconds)
            self._steps.append(self._phase_seconds + len(self._steps) * self._period_seconds + jitter)
        step = bisect.bisect_right(self._steps, moment) - 1
        return int(self._gpu.trace.joules_until(self._steps[step]) * 1000) if step >= 0 else 0


def edges_of(timeline: EnergyTimeline) -> Callable[..., Sequence[CounterEdge]]:
    """The edges of a timeline as the measurements read them."""
    return timeline.edges


def iterations(gpu: SyntheticGpu, rank: RankOfPipeline, count: int) -> list[IterationRecord]:
    """So many iterations in a row."""
    return [gpu.run(rank, number) for number in itertools.islice(itertools.count(), count)]
