"""What a rank measured of iterations under a plan and at free clocks, as its reports have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from wattloop.wire.message_fields import Integer, Number
from wattloop.wire.training_messages import MAX_NUMBER
from wattloop.wire.wire_form import WireForm

# Groups of cycles in a report. When there are more, they are joined in pairs, on all ranks alike.
MAX_GROUPS = 16
MAX_CYCLES = 10**9
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
        found[number] = ComparedCycles(
            number,
            width,
            each.cycles + (0 if before is None else before.cycles),
            each.plan_seconds + (0.0 if before is None else before.plan_seconds),
            each.free_seconds + (0.0 if before is None else before.free_seconds),
            each.plan_joules if before is None else _sum(before.plan_joules, each.plan_joules),
            each.free_joules if before is None else _sum(before.free_joules, each.free_joules),
        )
    return found


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
