"""Pipeline schedules: for each stage, an order of its operations."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError

FORWARD = "forward"
BACKWARD = "backward"
RECOMPUTATION = "recomputation"
FORWARD_BACKWARD = "forwardbackward"

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class StageOrder:
    """The operations of one stage in execution order, as arrays of one length."""

    instructions: Integers
    microbatches: Integers
    chunks: Integers


@dataclass(frozen=True)
class Schedule(ABC):
    """An order of operations for every stage of a pipeline.

    Attributes:
        stages: Number of pipeline stages, at least 1.
        microbatches: Number of microbatches in an iteration, at least 1.
        chunks: Number of model chunks a stage holds, at least 1.
    """

    stages: int
    microbatches: int
    chunks: int = 1

    instructions: ClassVar[tuple[str, ...]] = (FORWARD, BACKWARD)

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            UsageError: A size is below 1, or the schedule does not support the combination.
        """
        for name, value in (("stages", self.stages), ("microbatches", self.microbatches), ("chunks", self.chunks)):
            if value < 1:
                raise UsageError(f"--{name} {value}: must be at least 1")

    @property
    def operations(self) -> int:
        """Upper bound of the number of operations in an iteration."""
        return 2 * self.stages * self.microbatches * self.chunks

    @property
    def period(self) -> int:
        """Number of microbatches after which the order of a long iteration repeats."""
        return 1

    @abstractmethod
    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""


@dataclass(frozen=True)
class OneForwardOneBackward(Schedule):
    """1F1B: one forward, one backward.

    A stage first runs as many forwards as stages follow it, then alternates (PipeDream-Flush; Narayanan
    et al. 2021, "Efficient Large-Scale …", figure 4). At most one microbatch more is in flight.
    """

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        warmup = min(self.stages - stage - 1, self.microbatches)
        return single_chunk(*alternating(warmup, self.microbatches, (0, 1)))


@dataclass(frozen=True)
class GPipe(Schedule):
    """GPipe: all forwards, then all backwards in the same order (Huang et al. 2019; PyTorch's ScheduleGPipe)."""

    def stage_order(self, stage: int) -> StageOrder:  # noqa: ARG002 - every stage has the same order
        """The operations of this stage in execution order."""
        return single_chunk(*alternating(self.microbatches, self.microbatches, (0, 1)))


@dataclass(frozen=True)
class EarlyRecomputation(Schedule):
    """1F1B with early recomputation (Merak, Lai et al. 2023; Lowtime's `EarlyRecomputation1F1B`).

    The backward pass recomputes activations. While forwards remain, recomputation and backward are one
    operation, ``forwardbackward``. For the last backwards, a stage recomputes while it waits for its
    successor: ``recomputation``, then ``backward``.
    """

    instructions: ClassVar[tuple[str, ...]] = (FORWARD, BACKWARD, RECOMPUTATION, FORWARD_BACKWARD)

    @property
    def operations(self) -> int:
        """Upper bound of the number of operations in an iteration."""
        return (2 * self.microbatches + self.stages) * self.stages

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        warmup = min(self.stages - stage - 1, self.microbatches)
        kinds, numbers = alternating(warmup, self.microbatches, (0, 3))
        last = len(kinds) - warmup
        cooldown = np.repeat(numbers[last:], 2)
        return single_chunk(
            np.concatenate([kinds[:last], np.tile([2, 1], warmup)]), np.concatenate([numbers[:last], cooldown])
        )


@dataclass(frozen=True)
class Interleaved(Schedule):
    """Interleaved 1F1B: a stage holds several chunks of the model (Narayanan et al. 2021, section 2.2.2).

    Chunk c of stage s is the part c·stages + s of the model. Groups of `stages` microbatches take turns
    on a chunk. As in Megatron-LM, a stage runs ahead by
    ``2·(stages - stage - 1) + (chunks - 1)·stages`` forwards. One chunk per stage gives plain 1F1B. A row
    of a profile describes one chunk's part of an instruction.
    """

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            UsageError: The number of microbatches is not a multiple of the number of stages.
        """
        super().__post_init__()
        if self.chunks > 1 and self.microbatches % self.stages:
            raise UsageError(
                f"--schedule interleaved: --microbatches {self.microbatches} must be a multiple "
                f"of --stages {self.stages}"
            )

    @property
    def period(self) -> int:
        """Number of microbatches after which the order of a long iteration repeats."""
        return self.stages if self.chunks > 1 else 1

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        count = self.microbatches * self.chunks
        ahead = self.stages - stage - 1
        if self.chunks > 1:
            ahead = 2 * ahead + (self.chunks - 1) * self.stages
        kinds, numbers = alternating(min(ahead, count), count, (0, 1))
        group, within = np.divmod(numbers, self.stages * self.chunks)
        forward_chunks, place = np.divmod(within, self.stages)
        if self.chunks == 1:
            return StageOrder(kinds, numbers, np.zeros_like(numbers))
        chunks = np.where(kinds == 0, forward_chunks, self.chunks - 1 - forward_chunks)
        microbatches = group * self.stages + place
        return StageOrder(kinds, microbatches.astype(np.int32), chunks.astype(np.int32))


def single_chunk(instructions: npt.ArrayLike, microbatches: npt.ArrayLike) -> StageOrder:
    """A stage order with one chunk per stage."""
    found = np.asarray(instructions, dtype=np.int32)
    return StageOrder(found, np.asarray(microbatches, dtype=np.int32), np.zeros(len(found), dtype=np.int32))


def alternating(warmup: int, count: int, interleaved: tuple[int, int]) -> tuple[Integers, Integers]:
    """First ``warmup`` of one kind, then one of each in turn, then the rest of the second kind.

    Args:
        warmup: Number of operations of the first kind that go ahead, at most ``count``.
        count: Number of operations of each kind.
        interleaved: The two kinds.

    Returns:
        The kinds in order, and the index of each operation within its kind.

    Example:
        >>> kinds, numbers = alternating(1, 2, (0, 1))
        >>> kinds.tolist(), numbers.tolist()
        ([0, 0, 1, 1], [0, 1, 0, 1])
    """
    first, second = interleaved
    pairs = count - warmup
    kinds = np.concatenate([np.full(warmup, first), np.tile([first, second], pairs), np.full(warmup, second)])
    ahead = np.arange(warmup)
    turns = np.stack([np.arange(warmup, count), np.arange(pairs)], axis=1).ravel()
    numbers = np.concatenate([ahead, turns, np.arange(pairs, count)])
    return kinds.astype(np.int32), numbers.astype(np.int32)


SCHEDULES: Mapping[str, type[Schedule]] = {
    "1f1b": OneForwardOneBackward,
    "early-recompute-1f1b": EarlyRecomputation,
    "gpipe": GPipe,
    "interleaved": Interleaved,
}
