"""The pruning stage of the published algorithm: two rounds of walking down, then up, from the default batch size."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

ROUNDS = 2


@dataclass(frozen=True)
class RunResult:
    """What the pruning stage learns from one run.

    Attributes:
        batch_size: The size that ran.
        cost_joules: What the run cost.
        reached: Whether it reached the target; that alone decides whether the size survives.
    """

    batch_size: int
    cost_joules: float
    reached: bool


@dataclass(frozen=True)
class Pruning:
    """Where the pruning stage stands.

    Attributes:
        next_batch_size: The size to run next; None once the stage is over.
        survivors: The sizes left, rising, once it is over; empty when all were pruned.
    """

    next_batch_size: int | None
    survivors: tuple[int, ...] = ()


def pruning_after(batch_sizes: tuple[int, ...], default: int, results: Iterable[RunResult]) -> Pruning:
    """Where the stage stands after these results, in their order.

    A result of another size than the one asked for moves nothing.

    Args:
        batch_sizes: All sizes, rising.
        default: Where the first round starts.
        results: Results so far.

    Example:
        >>> pruning_after((8, 16, 32), 16, [RunResult(16, 5.0, True), RunResult(8, 9.0, False)])
        Pruning(next_batch_size=32, survivors=())
    """
    walk = _walk(batch_sizes, default)
    next_batch_size = next(walk)
    try:
        for result in results:
            if result.batch_size == next_batch_size:
                next_batch_size = walk.send(result)
    except StopIteration as end:
        return Pruning(None, end.value)
    return Pruning(next_batch_size)


def _walk(batch_sizes: tuple[int, ...], default: int) -> Generator[int, RunResult, tuple[int, ...]]:
    sizes = list(batch_sizes)
    for _ in range(ROUNDS):
        if default not in sizes:
            return ()
        start = sizes.index(default)
        reached: list[int] = []
        min_cost = float("inf")
        for direction in (sizes[start::-1], sizes[start + 1 :]):
            for size in direction:
                result = yield size
                if not result.reached:
                    break
                reached.append(size)
                if result.cost_joules < min_cost:
                    min_cost, default = result.cost_joules, size
        sizes = sorted(reached)
    return tuple(sizes)
