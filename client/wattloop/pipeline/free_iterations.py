"""Which iterations under a plan run at free clocks, in the middle of each cycle: docs/internals/plan-service.md.

All ranks find the same ones, because these follow from the directive and the number of the iteration alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from wattloop.wire.message_fields import Integer, MessageError, Number
from wattloop.wire.training_messages import MAX_NUMBER
from wattloop.wire.wire_form import WireForm

# Of a block, and of the plan's iterations after it: GPUs and neighbours adapt.
WARM_UP_ITERATIONS = 1
MAX_CYCLE_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class CyclePart:
    """Where an iteration is.

    Attributes:
        cycle: Number of its cycle, from 0.
        is_free: Whether it runs at free clocks.
        is_measured: Whether it counts; otherwise it warms up.
        ends_block: Whether the iterations until here are the last of the block or of its warm-up.
    """

    cycle: int
    is_free: bool
    is_measured: bool
    ends_block: bool = False


@dataclass(frozen=True)
class FreeIterations(WireForm):
    """Which iterations under a plan run at free clocks.

    Example:
        >>> free = FreeIterations(block=2, early_cycles=1, early_cycle=6, cycle=10)
        >>> ["free" if free.part(number).is_free else "plan" for number in range(6)]
        ['plan', 'plan', 'free', 'free', 'plan', 'plan']
        >>> [number for number in range(26) if free.part(number).is_free]
        [2, 3, 10, 11, 20, 21]
        >>> [number for number in range(6) if free.part(number).is_measured]
        [1, 3, 5]
    """

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    block: Annotated[
        int, Integer(MAX_CYCLE_ITERATIONS), "Consecutive iterations at free clocks, of which the first one warms up."
    ]
    early_cycles: Annotated[int, Integer(1_000), "Number of the first cycles, which are shorter."]
    early_cycle: Annotated[int, Integer(MAX_CYCLE_ITERATIONS), "Iterations of each of the first cycles."]
    cycle: Annotated[
        int, Integer(MAX_CYCLE_ITERATIONS), "Iterations of each later cycle, which has the block in its middle."
    ]

    def check(self, place: str) -> None:
        """See `WireForm`: a cycle has measured iterations of both kinds, on both sides of the block."""
        if self.block <= WARM_UP_ITERATIONS or min(self.early_cycle, self.cycle) < self.block + 4:
            raise MessageError(
                f"{place}block: found {self.block} iterations in cycles of {self.early_cycle} and {self.cycle}, "
                f"expected at least {WARM_UP_ITERATIONS + 1}, and cycles that are longer by 4 or more"
            )

    def part(self, offset: int) -> CyclePart:
        """Where an iteration is.

        Args:
            offset: Number of the iteration, from the first one of the plan.
        """
        early = self.early_cycles * self.early_cycle
        if offset < early:
            cycle, within = divmod(offset, self.early_cycle)
            length = self.early_cycle
        else:
            later, within = divmod(offset - early, self.cycle)
            cycle, length = self.early_cycles + later, self.cycle
        into = within - (length - self.block) // 2
        is_free = 0 <= into < self.block
        warms_up = into if is_free else offset if into < 0 else into - self.block
        ends = is_free and into + 1 in (WARM_UP_ITERATIONS, self.block)
        return CyclePart(cycle, is_free, warms_up >= WARM_UP_ITERATIONS, ends)

    def measured(self, cycle: int) -> tuple[int, int]:
        """Numbers of measured iterations of a cycle: of the plan, and at free clocks."""
        length = self.early_cycle if cycle < self.early_cycles else self.cycle
        warm_ups = WARM_UP_ITERATIONS * (2 if cycle == 0 else 1)
        return length - self.block - warm_ups, self.block - WARM_UP_ITERATIONS


# Groups of cycles in a report. When there are more, they are joined in pairs, on all ranks alike.
MAX_GROUPS = 16
MAX_CYCLES = 10**9
SUMMED = ("cycles", "plan_seconds", "free_seconds", "plan_joules", "free_joules")
# No iteration is shorter.
MIN_SECONDS = 1e-9


@dataclass(frozen=True)
class ComparedCycles(WireForm):
    """Consecutive cycles of iterations under a plan and at free clocks; see `FreeIterations`.

    Each value is the sum over the cycles of the mean of an iteration, from the end of the one before, with short
    pauses.
    """

    group: Annotated[int, Integer(MAX_CYCLES), "Number of the group: its cycles begin with group × width."]
    width: Annotated[int, Integer(MAX_CYCLES, minimum=1), "Cycles of a complete group."]
    cycles: Annotated[int, Integer(MAX_CYCLES, minimum=1), "Cycles of the group that were measured."]
    plan_seconds: Annotated[float, Number(MIN_SECONDS, MAX_NUMBER), "Time under the plan."]
    free_seconds: Annotated[float, Number(MIN_SECONDS, MAX_NUMBER), "Time at free clocks."]
    plan_joules: Annotated[
        float | None, Number(0.0, MAX_NUMBER), "Energy under the plan, of all GPUs of the process; null if unknown."
    ] = None
    free_joules: Annotated[
        float | None, Number(0.0, MAX_NUMBER), "Energy at free clocks, of all GPUs of the process; null if unknown."
    ] = None


def joined(groups: Iterable[ComparedCycles], width: int) -> dict[int, ComparedCycles]:
    """Groups of a larger width, by number. A group has an energy if all its parts have one.

    Args:
        groups: Groups of widths that divide the new one.
        width: The new width.

    Example:
        >>> narrow = [ComparedCycles(number, 1, 1, 1.0 + number, 2.0) for number in range(3)]
        >>> [(each.cycles, each.plan_seconds) for each in joined(narrow, 2).values()]
        [(2, 3.0), (1, 3.0)]
    """
    found: dict[int, ComparedCycles] = {}
    for each in groups:
        number = each.group * each.width // width
        before = found.get(number)
        if before is None:
            found[number] = replace(each, group=number, width=width)
            continue
        pairs = {name: (getattr(before, name), getattr(each, name)) for name in SUMMED}
        sums: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
        found[number] = replace(before, **sums)
    return found
