"""How a long iteration repeats the middle of a short one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.problem import Floats

# Single microbatches whose durations are tried for all.
REPRESENTATIVES = 8


@dataclass(frozen=True)
class Repetition:
    """Two iterations of one schedule, of which the longer repeats the middle of the shorter.

    The long iteration's first microbatches are the short one's first, its last the last. What lies between is given by
    a "middle": a duration for each stage, instruction, chunk and place in the schedule's period.

    Attributes:
        long: The long iteration.
        short: The short iteration.
        period: After how many microbatches the schedule repeats.
    """

    long: OperationGraph
    short: OperationGraph
    period: int

    def middles(self, durations: Floats) -> list[Floats]:
        """Middles for these durations of the short iteration's operations.

        First the mean over its middle half: a mean of schedules is a schedule, and costs no more than they do. Then
        single microbatches: their durations more often are some option's, so less is lost when they are rounded.
        """
        places, averaged = self._places(self.short), self._averaged
        sums, counts = np.bincount(places[averaged], durations[averaged]), np.bincount(places[averaged])
        found = [np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)]
        first, end = self._middle_half
        groups = np.unique(np.linspace(first, end - self.period, REPRESENTATIVES).astype(int) // self.period)
        for group in groups.tolist():
            chosen = averaged[self.short.microbatch_of[averaged] // self.period == group]
            one = found[0].copy()
            one[places[chosen]] = durations[chosen]
            found.append(one)
        return found

    def spread(self, durations: Floats, middle: Floats) -> Floats:
        """Durations of the long iteration's operations, shape (operations,)."""
        return np.concatenate([durations, middle])[self._sources]

    @cached_property
    def _middle_half(self) -> tuple[int, int]:
        head = self.short.microbatches // 4 // self.period * self.period
        return head, head + self.short.microbatches // 2 // self.period * self.period

    @cached_property
    def _averaged(self) -> npt.NDArray[np.int64]:
        first, end = self._middle_half
        return np.flatnonzero((self.short.microbatch_of >= first) & (self.short.microbatch_of < end))

    def _places(self, graph: OperationGraph) -> npt.NDArray[np.int64]:
        """For each operation its stage, instruction, chunk and place in the period as one number."""
        place = graph.microbatch_of.astype(np.int64) % self.period
        for size, part in (
            (len(graph.instructions), graph.instruction_of),
            (int(graph.chunk_of.max()) + 1, graph.chunk_of),
            (graph.stages, graph.stage_of),
        ):
            place = place * size + part
        return place

    @cached_property
    def _sources(self) -> npt.NDArray[np.int64]:
        """For each operation of the long iteration that of the short, or the short's size plus a place in a middle."""
        long, short = self.long, self.short
        first, end = self._middle_half
        shift = long.microbatches - short.microbatches
        microbatch = long.microbatch_of.astype(np.int64)
        is_last = microbatch >= end + shift
        sizes = (short.stages, len(short.instructions), int(short.chunk_of.max()) + 1, short.microbatches)
        table = np.full(sizes, -1, dtype=np.int64)
        table[short.stage_of, short.instruction_of, short.chunk_of, short.microbatch_of] = np.arange(short.operations)
        copied = np.where(is_last, microbatch - shift, np.minimum(microbatch, first))
        copies = table[long.stage_of, long.instruction_of, long.chunk_of, copied]
        return np.where((microbatch < first) | is_last, copies, short.operations + self._places(long))
