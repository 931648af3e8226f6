"""The operations of one training iteration and which waits for which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.schedules import BACKWARD, FORWARD, FORWARD_BACKWARD, Schedule

Integers = npt.NDArray[np.int32]
# Measured, with every array that planning holds: about 2 kB an operation.
BYTES_PER_OPERATION = 2_000
MAX_OPERATIONS = 2_000_000


@dataclass(frozen=True)
class OperationGraph:
    """Operations and precedences.

    Attributes:
        stages: Number of pipeline stages.
        microbatches: Number of microbatches.
        instructions: Names of the instructions.
        stage_of: Stage of each operation, shape (operations,).
        instruction_of: Index into ``instructions``, shape (operations,).
        microbatch_of: Microbatch, shape (operations,).
        chunk_of: Chunk of the stage's model, shape (operations,).
        order: For each stage its operations in execution order.
        befores: For each precedence the operation that must end …
        afters: … before this one starts, shape (precedences,).
        schedule: What the graph was made from, None for a graph of the user's own.
    """

    stages: int
    microbatches: int
    instructions: tuple[str, ...]
    stage_of: Integers
    instruction_of: Integers
    microbatch_of: Integers
    chunk_of: Integers
    order: tuple[Integers, ...]
    befores: Integers
    afters: Integers
    schedule: Schedule | None = None

    @property
    def operations(self) -> int:
        """Number of operations."""
        return len(self.stage_of)

    @cached_property
    def kinds(self) -> tuple[tuple[int, str], ...]:
        """The (stage, instruction) pairs that occur, sorted by stage and by index of the instruction."""
        pairs = np.flatnonzero(np.bincount(self._pair_of))
        return tuple(
            (int(pair) // len(self.instructions), self.instructions[pair % len(self.instructions)]) for pair in pairs
        )

    @cached_property
    def kind_of(self) -> Integers:
        """Index into ``kinds`` of each operation, shape (operations,)."""
        return np.unique(self._pair_of, return_inverse=True)[1].astype(np.int32)

    @cached_property
    def predecessors(self) -> tuple[Integers, Integers]:
        """The operations that each one waits for: places, shape (operations + 1,), in a row of all of them."""
        order = np.argsort(self.afters, kind="stable")
        counts = np.bincount(self.afters, minlength=self.operations)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), self.befores[order]

    @property
    def _pair_of(self) -> npt.NDArray[np.int64]:
        return self.stage_of.astype(np.int64) * len(self.instructions) + self.instruction_of

    def name(self, operation: int) -> str:
        """The operation in words, for messages."""
        return (
            f"stage {self.stage_of[operation]} {self.instructions[self.instruction_of[operation]]} "
            f"of microbatch {self.microbatch_of[operation]}"
        )


def check_size(operations: int, what: str) -> None:
    """Refuse a problem beyond memory.

    Raises:
        UsageError: It has more than ``MAX_OPERATIONS`` operations.
    """
    if operations > MAX_OPERATIONS:
        gigabytes = operations * BYTES_PER_OPERATION / 1e9
        raise UsageError(
            f"{what}: {operations:,} operations would take about {gigabytes:,.0f} GB of memory; "
            f"at most {MAX_OPERATIONS:,} are planned"
        )


def schedule_graph(schedule: Schedule) -> OperationGraph:
    """The graph of a schedule: each stage in its order, activations to the next stage, gradients to the one before.

    Raises:
        UsageError: There are too many operations.
    """
    check_size(schedule.operations, f"--stages {schedule.stages} --microbatches {schedule.microbatches}")
    orders = [schedule.stage_order(stage) for stage in range(schedule.stages)]
    lengths = np.array([len(order.microbatches) for order in orders])
    ends = np.cumsum(lengths)
    order = tuple(np.arange(end - length, end, dtype=np.int32) for end, length in zip(ends, lengths, strict=True))
    stage_of = np.repeat(np.arange(schedule.stages, dtype=np.int32), lengths)
    instruction_of = np.concatenate([stage.instructions for stage in orders])
    microbatch_of = np.concatenate([stage.microbatches for stage in orders])
    chunk_of = np.concatenate([stage.chunks for stage in orders])
    # Which part of the model an operation works on: the parts pass activations up and gradients down.
    part_of = chunk_of * schedule.stages + stage_of
    names = schedule.instructions
    forward = instruction_of == names.index(FORWARD)
    backward = np.isin(
        instruction_of, [index for index, name in enumerate(names) if name in (BACKWARD, FORWARD_BACKWARD)]
    )
    up = _part_edges(forward, part_of, microbatch_of, schedule)
    down = _part_edges(backward, part_of, microbatch_of, schedule)
    befores = np.concatenate([*(stage[:-1] for stage in order), up[0], down[1]])
    afters = np.concatenate([*(stage[1:] for stage in order), up[1], down[0]])
    # By the index, since NumPy imports its masked arrays to return the distinct values alone.
    _, edges = np.unique(befores.astype(np.int64) * schedule.operations + afters, return_index=True)
    return OperationGraph(
        schedule.stages,
        schedule.microbatches,
        names,
        stage_of,
        instruction_of,
        microbatch_of,
        chunk_of,
        order,
        befores[edges].astype(np.int32),
        afters[edges].astype(np.int32),
        schedule,
    )


def _part_edges(
    chosen: npt.NDArray[np.bool_], part_of: Integers, microbatch_of: Integers, schedule: Schedule
) -> tuple[Integers, Integers]:
    """For each microbatch the chosen operation of each part but the last, and that of the next part."""
    parts = schedule.stages * schedule.chunks
    table = np.empty((parts, schedule.microbatches), dtype=np.int32)
    operations = np.flatnonzero(chosen).astype(np.int32)
    table[part_of[operations], microbatch_of[operations]] = operations
    return table[:-1].ravel(), table[1:].ravel()
