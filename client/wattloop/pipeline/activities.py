"""What a rank does at each moment: an instruction, waiting for another stage, or something else.

The time between two instructions of an iteration is waiting: the GPU has no work, and the process spins in
a receive. The time after the last instruction has the optimizer's step in it, and the time before the
first one the loading of data on the first rank, so neither is waiting.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from wattloop.pipeline.iteration_record import IterationRecord

# Kinds of instructions are lower-case, so these are none.
BLOCKING = "Blocking"
OTHER = "Other"
# A pause between iterations that is longer, such as an evaluation, is no part of training steps.
MAX_PAUSE_SECONDS = 0.5


class Activity(NamedTuple):
    """What a rank does, with its GPUs at a clock.

    Attributes:
        kind: Kind of the instruction, `BLOCKING` or `OTHER`.
        stage: Model stage of the instruction; 0 if it is none.
        megahertz: Clock that the GPUs are held at; 0 without one.
    """

    kind: str
    stage: int
    megahertz: int


class Span(NamedTuple):
    """A part of the time of a rank.

    Attributes:
        begin_seconds: System monotonic clock.
        end_seconds: The same.
        activity: What the rank does; None if the time is not to be measured.
    """

    begin_seconds: float
    end_seconds: float
    activity: Activity | None


def instruction_spans(record: IterationRecord) -> list[Span]:
    """The instructions of an iteration, in execution order."""
    clocks = record.clocks_megahertz or (0,) * len(record.instructions)
    return [
        Span(record.stamps[2 * k], record.stamps[2 * k + 1], Activity(instruction.kind, instruction.stage, clock))
        for k, (instruction, clock) in enumerate(zip(record.instructions, clocks, strict=True))
    ]


def filled_spans(record: IterationRecord, instructions: Sequence[Span], *, first_rank: bool) -> list[Span]:
    """The parts of an iteration, in order and without gaps.

    A wait has the clock of the instruction after it, which is set when the instruction before it ends.

    Args:
        record: The iteration.
        instructions: Its instructions.
        first_rank: Whether the rank is the first of its pipeline, which waits for nothing before its first
            instruction.

    Example:
        >>> from array import array
        >>> from wattloop.pipeline.instruction import Instruction
        >>> from wattloop.pipeline.plan_messages import Directive
        >>> instructions = (Instruction("forward", 1, 0), Instruction("forward", 1, 1))
        >>> stamps = array("d", [1.0, 2.0, 2.5, 3.0])
        >>> record = IterationRecord(0, Directive(), instructions, (1410, 1200), 0.0, 4.0, stamps)
        >>> for span in filled_spans(record, instruction_spans(record), first_rank=False):
        ...     print(span.begin_seconds, span.activity.kind, span.activity.megahertz)
        0.0 Blocking 1410
        1.0 forward 1410
        2.0 Blocking 1200
        2.5 forward 1200
        3.0 Other 1200
    """
    moment, waiting, clock = record.begin_seconds, OTHER if first_rank else BLOCKING, 0
    found = []
    for span, megahertz in zip(instructions, record.clocks_megahertz or (0,) * len(instructions), strict=True):
        clock = megahertz
        if span.begin_seconds > moment:
            found.append(Span(moment, span.begin_seconds, Activity(waiting, 0, clock)))
        found.append(span)
        moment, waiting = span.end_seconds, BLOCKING
    if record.end_seconds > moment:
        found.append(Span(moment, record.end_seconds, Activity(OTHER, 0, clock)))
    return found


class ActivityHistory:
    """The activities of the last minutes, in order of time.

    Example:
        >>> history = ActivityHistory()
        >>> forward, backward = Activity("forward", 0, 0), Activity("backward", 0, 0)
        >>> history.add(Span(0.0, 1.0, forward))
        >>> history.add(Span(1.0, 3.0, backward))
        >>> history.seconds_between(0.75, 1.5)
        {Activity(kind='forward', stage=0, megahertz=0): 0.25, Activity(kind='backward', stage=0, megahertz=0): 0.5}
    """

    def __init__(self) -> None:
        self._begins: list[float] = []
        self._spans: list[Span] = []

    @property
    def end_seconds(self) -> float:
        """End of the newest part; infinitely early without one."""
        return self._spans[-1].end_seconds if self._spans else float("-inf")

    def add(self, span: Span) -> None:
        """Add a part; it begins at or after the end of the one before. Time that no part has is not measured."""
        self._begins.append(span.begin_seconds)
        self._spans.append(span)

    def forget_before(self, moment_seconds: float) -> None:
        """Discard the parts that end before a moment."""
        index = max(bisect.bisect_right(self._begins, moment_seconds) - 1, 0)
        del self._begins[:index], self._spans[:index]

    def at(self, moment_seconds: float) -> Activity | None:
        """The activity at a moment; None if it is not to be measured."""
        index = bisect.bisect_right(self._begins, moment_seconds) - 1
        if index < 0 or self._spans[index].end_seconds <= moment_seconds:
            return None
        return self._spans[index].activity

    def seconds_between(self, begin_seconds: float, end_seconds: float) -> dict[Activity, float] | None:
        """Seconds of each activity between two moments; None if a part of the time is not to be measured."""
        found: dict[Activity, float] = {}
        moment = begin_seconds
        first = bisect.bisect_right(self._begins, begin_seconds) - 1
        for span in self._spans[first:] if first >= 0 else ():
            if span.begin_seconds >= end_seconds:
                break
            # Stamps of neighbours may differ in the last digit.
            if span.activity is None or span.begin_seconds > moment + 1e-9:
                return None
            until = min(span.end_seconds, end_seconds)
            found[span.activity] = found.get(span.activity, 0.0) + max(until - moment, 0.0)
            moment = max(moment, until)
        return found if moment >= end_seconds - 1e-9 else None
