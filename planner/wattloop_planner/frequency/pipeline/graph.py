"""The graph of operations of one training iteration and their precedences."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.schedules import BACKWARD, FORWARD, FORWARD_BACKWARD, Integers, Schedule

# Measured, with every array of the planner: about 2 kB per operation.
BYTES_PER_OPERATION = 2_000
MAX_OPERATIONS = 2_000_000


@dataclass(frozen=True)
class OperationGraph:
    """Operations and precedences.

    Attributes:
        stage_of: Stage of each operation, shape (operations,).
        instruction_of: Index into ``instructions``, shape (operations,).
        microbatch_of: Microbatch, shape (operations,).
        chunk_of: Chunk of the stage's model, shape (operations,).
        order: Operations of each stage in execution order.
        befores: The operation of each precedence that ends first, shape (precedences,).
        afters: The operation of each precedence that starts after it, shape (precedences,).
        schedule: The schedule of the graph; None for a graph from a file.
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
        """The predecessors of each operation: offsets, shape (operations + 1,), and the concatenated predecessors."""
        order = np.argsort(self.afters, kind="stable")
        counts = np.bincount(self.afters, minlength=self.operations)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), self.befores[order]

    @property
    def _pair_of(self) -> npt.NDArray[np.int64]:
        return self.stage_of.astype(np.int64) * len(self.instructions) + self.instruction_of

    def name(self, operation: int) -> str:
        """Name of the operation, for messages."""
        return (
            f"stage {self.stage_of[operation]} {self.instructions[self.instruction_of[operation]]} "
            f"of microbatch {self.microbatch_of[operation]}"
        )


def check_size(operations: int, what: str) -> None:
    """Check that a graph fits into memory.

    Raises:
        UsageError: The graph has more than ``MAX_OPERATIONS`` operations.
    """
    if operations > MAX_OPERATIONS:
        gigabytes = operations * BYTES_PER_OPERATION / 1e9
        raise UsageError(
            f"{what}: {operations:,} operations would take about {gigabytes:,.0f} GB of memory; "
            f"the maximum is {MAX_OPERATIONS:,}"
        )


def schedule_graph(schedule: Schedule) -> OperationGraph:
    """The graph of a schedule.

    Each stage runs in its order, activations go to the next stage, and gradients to the previous one.

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
    # The part of the model of each operation; activations go to the next part, gradients to the previous one.
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
    # return_index=True, because np.unique imports numpy.ma if only the values are requested.
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
    """For each microbatch, the chosen operation of each part except the last, and that of the next part."""
    parts = schedule.stages * schedule.chunks
    table = np.empty((parts, schedule.microbatches), dtype=np.int32)
    operations = np.flatnonzero(chosen).astype(np.int32)
    table[part_of[operations], microbatch_of[operations]] = operations
    return table[:-1].ravel(), table[1:].ravel()


def critical_path(graph: OperationGraph, finishes: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """One longest path, found backwards from the last operation by the predecessor that ends last.

    Args:
        graph: The operations.
        finishes: When each of them ends, in seconds, shape (operations,).
    """
    first, before = graph.predecessors
    operation = int(np.argmax(finishes))
    path = [operation]
    while first[operation] < first[operation + 1]:
        waited_for = before[first[operation] : first[operation + 1]]
        operation = int(waited_for[np.argmax(finishes[waited_for])])
        path.append(operation)
    return np.array(path[::-1], dtype=np.int64)
