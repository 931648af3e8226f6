"""Maps a short iteration to a long one that repeats its middle."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.planning_problem import Floats

# Number of single microbatches whose durations are tried as the middle.
REPRESENTATIVES = 8


@dataclass(frozen=True)
class Repetition:
    """Two iterations of one schedule; the longer repeats the middle of the shorter.

    The first and last microbatches of both iterations correspond. A "middle" gives the durations between
    them: one for each stage, instruction, chunk and position in the schedule's period.

    Attributes:
        period: Number of microbatches after which the schedule repeats.
    """

    long: OperationGraph
    short: OperationGraph
    period: int

    def middles(self, durations: Floats) -> list[Floats]:
        """Candidate middles from the durations of the short iteration's operations.

        The first is the mean over the middle half: a mean of schedules is a schedule of at most their mean
        cost. The others are single microbatches: their durations are more often those of an option, so
        rounding loses less.
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
        """Durations of the long iteration's operations with this middle, shape (operations,)."""
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
        """Index of each operation's stage, instruction, chunk and position in the period."""
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
        """For each operation of the long iteration, the index of its duration in (short durations, middle)."""
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
