"""The pruning stage of the published algorithm: two rounds, each down and then up from the default."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

ROUNDS = 2


@dataclass(frozen=True)
class RunResult:
    """The result of one run in the pruning stage.

    Attributes:
        batch_size: The size that ran.
        cost_joules: Cost of the run.
        reached: Whether it reached the target; a size survives if it did.
    """

    batch_size: int
    cost_joules: float
    reached: bool


@dataclass(frozen=True)
class Pruning:
    """The state of the pruning stage.

    Attributes:
        next_batch_size: The size to run next; None once the stage is over.
        survivors: The remaining sizes in rising order once the stage is over; empty if all were pruned.
    """

    next_batch_size: int | None
    survivors: tuple[int, ...] = ()


def pruning_after(batch_sizes: tuple[int, ...], default: int, results: Iterable[RunResult]) -> Pruning:
    """The state after these results, in order.

    A result of another size than the requested one is ignored.

    Args:
        batch_sizes: All sizes, rising.
        default: The size that the first round starts from.
        results: Results so far.

    Example:
        >>> pruning_after((8, 16, 32), 16, [RunResult(16, 5.0, True), RunResult(8, 9.0, False)])
        Pruning(next_batch_size=32, survivors=())
    """
    stage = _pruning(batch_sizes, default)
    next_batch_size = next(stage)
    try:
        for result in results:
            if result.batch_size == next_batch_size:
                next_batch_size = stage.send(result)
    except StopIteration as end:
        return Pruning(None, end.value)
    return Pruning(next_batch_size)


def _pruning(batch_sizes: tuple[int, ...], default: int) -> Generator[int, RunResult, tuple[int, ...]]:
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
