"""What a pipeline records of an iteration, and the interface of those who measure with it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Protocol

from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.plan_messages import Directive, RankReport


@dataclass(frozen=True)
class IterationRecord:
    """One complete iteration whose instructions were those of the sequence.

    Attributes:
        number: Its number, from 0.
        directive: The directive in force; number 0 and mode Free without one.
        instructions: The instructions in execution order.
        clocks_megahertz: The clock sent for each instruction, in the same order; empty: free clocks.
        begin_seconds: When the iteration began, on the clock of the pipeline (CLOCK_MONOTONIC).
        end_seconds: When it ended.
        stamps: Begin and end of each instruction on the same clock: ``stamps[2 * k]`` and
            ``stamps[2 * k + 1]``, in seconds.
        interrupted: Whether the agent ceased to hold the clocks meanwhile, or did not hold them yet.
    """

    number: int
    directive: Directive
    instructions: tuple[Instruction, ...]
    clocks_megahertz: tuple[int, ...]
    begin_seconds: float
    end_seconds: float
    stamps: array[float]
    interrupted: bool = False


class Observer(Protocol):
    """Measures a pipeline."""

    def profiling_clock(self, directive: Directive, iteration: int) -> int | None:
        """The clock of all instructions of an iteration under a Profile directive; None: free clocks.

        Called in the training thread, at the end of the previous iteration or at the begin of this one.

        Args:
            directive: The directive in force. A rank that learns of it late begins with it after its
                `first_iteration`; all ranks count the iterations from there.
            iteration: Number of the iteration, from 0.
        """

    def iteration_done(self, record: IterationRecord) -> None:
        """Take the record of an iteration. Called in the training thread, so it must be quick."""

    def measured(self, report: RankReport) -> RankReport:
        """The report with what has been measured so far. Called in the thread that reports."""

    def close(self) -> None:
        """Stop measuring."""
