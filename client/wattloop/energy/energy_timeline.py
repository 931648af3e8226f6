"""The energy of one GPU over time, from readings of its counter and its power."""

import bisect
import math
from array import array
from dataclasses import dataclass

from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy.periodic_edges import EdgeTime, EdgeTimes, blended, edge_times
from wattloop.energy.power_history import PowerHistory
from wattloop.energy.step_shape import StepEdges, StepShape

# Ten minutes of a counter that advances every 100 ms.
MAX_EDGES = 6144
# Edges whose times are found together. In more, the device's clock drifts from the system's.
BLOCK = 32
# The same where the energy of long times is looked at afterwards, and the newest edges may wait.
LONG_BLOCK = 256
BLOCK_STRIDE = 16
# A counter that advances more often than it is read advances about as often as this.
FAST_SECONDS = 0.02
FAST_SHARE = 0.95
# Edges on each side of a step that its shape is learned from.
NEIGHBOURS = 8
# Longer without a reading counts as missing readings.
MAX_GAP_SECONDS = 1.0
# Of power that is extrapolated, in addition to the changes that were seen.
EXTRAPOLATION_ERROR = 0.05
# Of power before the first edge, if readings show that there was none.
EXTRAPOLATION_BEFORE = 0.3
# The counter is in whole millijoules.
ROUNDING_JOULES = 0.001 / math.sqrt(6)
# A half width over the standard deviation, of an error that is near the middle of its bounds more often than
# at their ends.
TIMING_SPREAD = math.sqrt(6)
POWER_STEP_SECONDS = 0.1
MAX_CACHED = 512


@dataclass(frozen=True)
class CounterEdge:
    """A step of the counter, with the best estimate of its time.

    Attributes:
        number: Number of the edge, rising by 1.
        seconds: Estimated time of the step.
        deviation_seconds: Standard deviation of the error of that time.
        periodic: Whether the counter has a period, so that edges near each other have the same error.
        joules: Energy used until the step, from an arbitrary zero.
        epoch: Number of times that the counter had been reset before.
    """

    number: int
    seconds: float
    deviation_seconds: float
    periodic: bool
    joules: float
    epoch: int


@dataclass(frozen=True)
class EnergyPoint:
    """The energy used until a moment.

    Attributes:
        joules: Energy, from an arbitrary zero.
        deviation_joules: Standard deviation of its error.
        watts: Power around the moment.
        edge: The edge before it, or the nearest.
        step: Number of the counter's step that contains the moment; None outside.
        fraction: Fraction of the step that is before the moment.
        missing: What is missing for an exact value; empty if nothing is.
        epoch: Number of times that the counter had been reset before.
        power_square: For a GPU without a counter: the variance of the integral of its power until then, in joules
            squared.
    """

    joules: float
    deviation_joules: float
    watts: float
    moment_seconds: float
    edge: EdgeTime | None = None
    step: int | None = None
    fraction: float = 0.0
    missing: str = ""
    epoch: int = 0
    power_square: float | None = None


@dataclass(frozen=True)
class WindowEnergy:
    """The energy between two moments.

    Attributes:
        deviation_joules: Standard deviation of its error.
        missing: Why it is incomplete; empty if it is not.
        integrated: Whether it is the integral of power, since the GPU has no energy counter.
    """

    joules: float
    deviation_joules: float
    missing: str = ""
    integrated: bool = False


@dataclass(frozen=True)
class _Step:
    number: int
    shape: StepShape
    begin_seconds: float
    end_seconds: float
    begin_joules: float
    watts: float
    edge: EdgeTime

    @property
    def length_seconds(self) -> float:
        return self.end_seconds - self.begin_seconds

    def watts_at(self, moment: float) -> float:
        half = self.length_seconds / 20
        low, high = max(self.begin_seconds, moment - half), min(self.end_seconds, moment + half)
        return (self.shape.joules_until(high) - self.shape.joules_until(low)) / (high - low)


class EnergyTimeline:
    """Energy at any moment of the last minutes.

    Not thread-safe.

    Example:
        >>> timeline = EnergyTimeline()
        >>> for k in range(400):
        ...     timeline.add(GpuReading("GPU-1", k / 50, k / 50, 300_00 * (k // 5), 300.0))
        >>> round(timeline.between(2.512, 2.562).joules, 2)
        15.0
    """

    def __init__(self) -> None:
        # For each edge: bounds of its time, and the energy used until then.
        self._earliest = array("d")
        self._latest = array("d")
        self._joules = array("d")
        self._dropped = 0
        self._power = PowerHistory()
        self._last: GpuReading | None = None
        self._first_seconds = math.inf
        self._offset_millijoules = 0
        self._resets: list[float] = []
        self._blocks: dict[tuple[int, int], EdgeTimes] = {}
        self._shapes: dict[tuple[int, int, int], _Step] = {}
        self.has_counter = False
        self.end_seconds = -math.inf
        """Begin of the newest reading: what happened before is in it."""

    def add(self, reading: GpuReading) -> None:
        """Add a reading; one that does not follow the last in time is ignored."""
        if reading.begin_seconds < self.end_seconds:
            return
        if reading.instant_watts is not None:
            self._power.add(reading.end_seconds, reading.instant_watts)
        if reading.energy_millijoules is not None:
            self._add_counter(reading, reading.energy_millijoules)
        elif not self.has_counter:
            self.end_seconds = reading.begin_seconds
            self._first_seconds = min(self._first_seconds, reading.begin_seconds)

    def _add_counter(self, reading: GpuReading, counter: int) -> None:
        self.has_counter = True
        last, self._last = self._last, reading
        self.end_seconds = reading.begin_seconds
        if last is None:
            self._first_seconds = reading.begin_seconds
            return
        before = last.energy_millijoules or 0
        if counter == before:
            return
        if counter < before:
            # The energy since the last reading is unknown; power gives an estimate.
            lost = max(self._watts_now() * (reading.end_seconds - last.end_seconds) * 1e3, counter)
            self._offset_millijoules += before + round(lost) - counter
            self._resets.append(reading.end_seconds)
        self._earliest.append(last.begin_seconds)
        self._latest.append(reading.end_seconds)
        self._joules.append((counter + self._offset_millijoules) / 1e3)
        if reading.begin_seconds - last.begin_seconds > MAX_GAP_SECONDS:
            # The last edge of a gap was within a step of the counter before this reading.
            period = self._period()
            if period is not None:
                self._earliest[-1] = max(last.begin_seconds, reading.begin_seconds - 1.1 * period)
        if len(self._joules) >= 2 * MAX_EDGES:
            for column in (self._earliest, self._latest, self._joules):
                del column[:MAX_EDGES]
            self._dropped += MAX_EDGES

    @property
    def begin_seconds(self) -> float:
        """The earliest moment whose energy is known now and will be forgotten next."""
        return self._earliest[0] if self._dropped else self._first_seconds

    def is_final(self, moment_seconds: float) -> bool:
        """Whether later readings can hardly improve the energy at a moment."""
        if not self.has_counter:
            return len(self._power) > 0 and self._power.end_seconds > moment_seconds + POWER_STEP_SECONDS
        return len(self._earliest) > 1 and self._earliest[-2] > moment_seconds

    def edges(self, first: int, *, final: bool = True) -> list[CounterEdge]:
        """The edges from a number on, in order of time.

        Args:
            first: Number of the first edge; edges that are no longer kept are left out.
            final: Whether to leave out the newest edges, whose times later readings improve.
        """
        total = len(self._joules) + self._dropped
        half = LONG_BLOCK // 2
        end = total // half * half - half if final else total
        return [self._final_edge(index) for index in range(max(first - self._dropped, 0), end - self._dropped)]

    def _final_edge(self, index: int) -> CounterEdge:
        block = LONG_BLOCK
        edge = self._edge(index, block)
        periodic = edge.period_seconds is not None
        if not periodic:
            block = BLOCK
            edge = self._edge(index)
        # An error of the period grows with the distance from the middle of the block.
        drift = edge.period_half_width_seconds * min(len(self._joules), block) / 4
        seconds, deviation = edge.seconds, math.hypot(edge.half_width_seconds, drift) / TIMING_SPREAD
        if self._is_fast(index):
            # What looks like its period is that of the readings.
            seconds, deviation, periodic = self._latest[index] - FAST_SECONDS / 2, FAST_SECONDS / math.sqrt(12), False
        number = index + self._dropped
        return CounterEdge(number, seconds, deviation, periodic, self._joules[index], self._epoch(seconds))

    def _is_fast(self, index: int) -> bool:
        """Whether each reading around an edge has another value, so that the counter advances more often."""
        first, last = max(index - BLOCK_STRIDE, 1), min(index + BLOCK_STRIDE, len(self._joules))
        touching = sum(self._earliest[k] <= self._latest[k - 1] for k in range(first, last))
        return touching >= FAST_SHARE * (last - first)

    def at(self, moment_seconds: float) -> EnergyPoint | None:
        """The energy used until a moment; None if there is too little to say anything."""
        if not self.has_counter:
            return self._at_by_power(moment_seconds)
        if len(self._joules) < 2:
            return self._at_without_edges(moment_seconds)
        step = self._shape(self._step(moment_seconds))
        if moment_seconds < step.begin_seconds:
            return self._before(moment_seconds, step)
        if moment_seconds > step.end_seconds:
            return self._beyond(moment_seconds, step)
        fraction = (moment_seconds - step.begin_seconds) / step.length_seconds
        own = 0.0
        if step.edge.period_seconds is None:
            own = step.watts * step.edge.half_width_seconds / math.sqrt(3)
        return EnergyPoint(
            joules=step.begin_joules + step.shape.joules_until(moment_seconds),
            deviation_joules=math.hypot(step.shape.deviation_joules(fraction), own, self._gap_deviation(step)),
            watts=step.watts_at(moment_seconds),
            moment_seconds=moment_seconds,
            edge=step.edge,
            step=step.number,
            fraction=fraction,
            missing=_gap_text(step.length_seconds) if step.length_seconds > MAX_GAP_SECONDS else "",
            epoch=self._epoch(moment_seconds),
        )

    def between(self, begin_seconds: float, end_seconds: float) -> WindowEnergy | None:
        """The energy between two moments; None if there is too little to say anything."""
        begin, end = self.at(begin_seconds), self.at(end_seconds)
        if begin is None or end is None:
            return None
        return difference(begin, end)

    def _at_by_power(self, moment: float) -> EnergyPoint | None:
        power = self._power
        if not len(power):
            return None
        joules = power.joules_at(moment)
        watts = (power.joules_at(moment + 0.01) - power.joules_at(moment - 0.01)) / 0.02
        around = [watts for _, watts in power.between(moment - 2 * POWER_STEP_SECONDS, moment + POWER_STEP_SECONDS)]
        swing = max(around) - min(around) if around else 0.0
        outside = max(power.begin_seconds - moment, moment - power.end_seconds - POWER_STEP_SECONDS, 0.0)
        deviation = swing * POWER_STEP_SECONDS / math.sqrt(12) + watts * outside
        missing = _gap_text(outside) if outside > MAX_GAP_SECONDS else ""
        square = power.variance_at(moment)
        return EnergyPoint(joules, deviation, watts, moment, missing=missing, power_square=square)

    def _at_without_edges(self, moment: float) -> EnergyPoint | None:
        """The energy from power alone, while the counter has not advanced twice."""
        if not len(self._power) or self._last is None:
            return None
        watts = self._power.last_watts
        joules = self._power.joules_at(moment)
        return EnergyPoint(joules, watts * 0.1, watts, moment, missing="the counter has been read for too short a time")

    def _before(self, moment: float, step: _Step) -> EnergyPoint:
        """Extrapolates the power of the first step."""
        outside = step.begin_seconds - moment
        unread = self._first_seconds - moment
        missing = "" if unread < MAX_GAP_SECONDS / 4 else f"the first reading came {unread:.1f} s after its begin"
        if self._dropped:
            kept = self.end_seconds - step.begin_seconds
            missing = f"readings are kept for about {kept:.0f} s, and its begin is older"
        return EnergyPoint(
            joules=step.begin_joules - step.watts * outside,
            deviation_joules=step.watts * (outside * EXTRAPOLATION_BEFORE if unread < 0 else outside),
            watts=step.watts,
            moment_seconds=moment,
            edge=step.edge,
            missing=missing,
            epoch=self._epoch(moment),
        )

    def _beyond(self, moment: float, step: _Step) -> EnergyPoint:
        """Extrapolates the newest power; an unchanged counter bounds it by one step."""
        now = self._watts_now()
        unread = moment - self.end_seconds
        covered = min(moment - step.end_seconds, max(step.length_seconds, unread + step.length_seconds))
        swing = abs(now - step.watts) + EXTRAPOLATION_ERROR * max(now, step.watts)
        if unread > MAX_GAP_SECONDS:
            swing = max(swing, now)
        return EnergyPoint(
            joules=step.begin_joules + step.watts * step.length_seconds + now * covered,
            deviation_joules=swing * covered,
            watts=now,
            moment_seconds=moment,
            edge=step.edge,
            missing=_gap_text(unread) if unread > MAX_GAP_SECONDS else "",
            epoch=self._epoch(moment),
        )

    def _epoch(self, moment: float) -> int:
        return bisect.bisect_right(self._resets, moment)

    def _watts_now(self) -> float:
        if len(self._power):
            return self._power.last_watts
        if len(self._joules) < 2:
            return 0.0
        elapsed = self._latest[-1] - self._latest[-2]
        return (self._joules[-1] - self._joules[-2]) / elapsed if elapsed > 0 else 0.0

    def _gap_deviation(self, step: _Step) -> float:
        """Of a step that is longer than the others, since readings are missing."""
        period = self._period()
        if period is None or step.length_seconds < 3 * period:
            return 0.0
        return step.watts * step.length_seconds / math.sqrt(12) / 2

    def _period(self) -> float | None:
        count = len(self._joules)
        if count < 2:
            return None
        found = self._edge(count - 1).period_seconds
        return found if found is not None else (self._latest[-1] - self._latest[0]) / (count - 1)

    def _step(self, moment: float) -> int:
        """Index of the edge that begins the step with this moment, or the nearest step."""
        count = len(self._joules)
        index = min(max(bisect.bisect_right(self._latest, moment) - 1, 0), count - 2)
        while index > 0 and moment < self._edge(index).seconds:
            index -= 1
        while index < count - 2 and moment >= self._edge(index + 1).seconds:
            index += 1
        return index

    def _shape(self, index: int) -> _Step:
        count = len(self._joules)
        first, last = max(index - NEIGHBOURS, 0), min(index + NEIGHBOURS + 2, count)
        # Later power readings matter to the newest edges only.
        key = (index + self._dropped, last + self._dropped, len(self._power) if last == count else 0)
        found = self._shapes.get(key)
        if found is None:
            times = [self._edge(k).seconds for k in range(first, last)]
            edges = StepEdges(times, self._joules[first:last])
            position = index - first
            found = _Step(
                number=index + self._dropped,
                shape=StepShape(edges, position, self._power),
                begin_seconds=edges.times_seconds[position],
                end_seconds=edges.times_seconds[position + 1],
                begin_joules=edges.joules[position],
                watts=edges.power(position, position + 1),
                edge=self._edge(index),
            )
            _put(self._shapes, key, found)
        return found

    def _edge(self, index: int, block: int = BLOCK) -> EdgeTime:
        """The time of an edge, from both of the overlapping blocks that contain it.

        Their weights change from edge to edge, so that the errors of two blocks make no jump between
        two edges.
        """
        number, stride = index + self._dropped, block // 2
        part = number % stride
        later = number - part - self._dropped
        return blended(
            self._time_in_block(later - stride, index, block),
            self._time_in_block(later, index, block),
            (part + 0.5) / stride,
        )

    def _time_in_block(self, base: int, index: int, block: int) -> EdgeTime:
        count = len(self._joules)
        base = max(min(base, count - block), 0)
        last = min(base + block, count)
        key = (base + self._dropped, last + self._dropped)
        found = self._blocks.get(key)
        if found is None:
            found = edge_times(list(zip(self._earliest[base:last], self._latest[base:last], strict=True)))
            _put(self._blocks, key, found)
        return found.edge(index - base)


def difference(begin: EnergyPoint, end: EnergyPoint) -> WindowEnergy:
    """The energy between two points of one timeline, and the standard deviation of its error."""
    joules = max(end.joules - begin.joules, 0.0)
    if begin.step is not None and begin.step == end.step:
        # Both errors are of one Brownian bridge: only the part between them counts.
        part = min(max(end.fraction - begin.fraction, 0.0), 1.0)
        peak = max(_scale(begin), _scale(end))
        shape = peak * math.sqrt(part * (1 - part))
    else:
        shape = math.hypot(begin.deviation_joules, end.deviation_joules)
    timing = _timing_joules(begin, end, joules)
    integrated = begin.power_square is not None and end.power_square is not None
    inside = math.sqrt(max((end.power_square or 0.0) - (begin.power_square or 0.0), 0.0)) if integrated else 0.0
    missing = begin.missing or end.missing
    if begin.epoch != end.epoch:
        missing = missing or "the GPU's energy counter was reset"
    return WindowEnergy(joules, math.hypot(shape, timing, inside, ROUNDING_JOULES), missing, integrated)


def _timing_joules(begin: EnergyPoint, end: EnergyPoint, joules: float) -> float:
    """Standard deviation of the energy due to errors of the times of edges that have a period.

    The edges of a short time have the same error, so that their energy is wrong by the change of power
    alone. Those of different blocks have independent errors.
    """
    first, last = begin.edge, end.edge
    if first is None or last is None or first.period_seconds is None or last.period_seconds is None:
        return 0.0
    error = max(first.half_width_seconds, last.half_width_seconds) / TIMING_SPREAD
    periods = (end.moment_seconds - begin.moment_seconds) / last.period_seconds
    independent = math.hypot(begin.watts, end.watts) * error * min(periods / BLOCK_STRIDE, 1.0)
    stretch = last.period_half_width_seconds / last.period_seconds / TIMING_SPREAD
    stretched = joules * stretch * min(BLOCK_STRIDE / max(periods, 1.0), 1.0)
    return math.hypot((end.watts - begin.watts) * error, independent, stretched)


def _scale(point: EnergyPoint) -> float:
    spread = point.fraction * (1 - point.fraction)
    return point.deviation_joules / math.sqrt(spread) if spread > 1e-6 else 0.0


def _gap_text(seconds: float) -> str:
    return f"there are no readings for {seconds:.1f} s around its begin or end"


def _put(cache: dict, key: tuple[int, ...], value: object) -> None:  # type: ignore[type-arg]
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value
