"""Runs the iterations of a pipeline: chooses and sends the clocks of their instructions, and records them."""

import logging
from array import array
from collections.abc import Callable
from itertools import pairwise

from wattloop.errors import UsageError
from wattloop.pipeline.clock_sender import ClockTarget
from wattloop.pipeline.directives import IterationClocks
from wattloop.pipeline.instruction_scope import InstructionScope, InstructionSequence
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.knobs import NO_KNOBS, Knobs

logger = logging.getLogger("wattloop")


class IterationRunner:
    """Runs iterations, one after the other, in one thread.

    The clock of an instruction is sent when the instruction before it ends, so that it changes while the
    rank waits for data. The first clock of an iteration is sent at the end of the one before.

    Args:
        sequence: The instructions.
        clocks: Where clocks are sent.
        clocks_of: Gives the clocks of an iteration.
        done: Called with the record of each complete iteration that has the instructions of the sequence.
        synchronization: Gives at the begin of an iteration what waits until the GPUs have done the queued work;
            None: there is nothing to wait for. No instruction waits at free clocks without a power limit.
        now: The clock of the stamps, in seconds.

    Attributes:
        clocks: As above; may be replaced between two iterations.
        hold_limit: Holds the power limit of an iteration; None: no iteration has one.
        instructions: Runs the instructions of the iteration.
        iterations: Number of complete iterations.
        in_force: The clocks chosen for the iteration.
        applied_directive: Number of the directive of the last complete iteration.
        megahertz: The clock of each instruction of the iteration; empty: free clocks, also after a mismatch.
    """

    def __init__(
        self,
        sequence: InstructionSequence,
        clocks: ClockTarget,
        *,
        clocks_of: Callable[[int], IterationClocks],
        done: Callable[[IterationRecord], None],
        synchronization: Callable[[], Callable[[], None] | None],
        now: Callable[[], float],
    ) -> None:
        self._sequence = sequence
        self.clocks = clocks
        self.hold_limit: Callable[[int | None], None] | None = None
        self._clocks_of = clocks_of
        self._done = done
        self._synchronization = synchronization
        self._now = now
        self._in_iteration = False
        self.instructions = InstructionScope(sequence, now, self._run_free)
        self._requests: tuple[object, list[bytes | None]] = None, []
        self._begin_seconds = 0.0
        self._interruptions = -1
        self._reported_mismatch = ""
        self.in_force = IterationClocks()
        self.megahertz: tuple[int, ...] = ()
        self.iterations = 0
        self.applied_directive = 0

    @property
    def knobs(self) -> Knobs:
        """The knobs of the instruction that runs; empty outside of one, at free clocks, and of a plan without knobs."""
        # Looked up when they are asked for, so that an instruction costs no more with knobs.
        chosen = self.in_force.knobs
        position = self.instructions.running
        return chosen[position] if chosen and self.megahertz and position is not None else NO_KNOBS

    def begin_iteration(self) -> None:
        """Begin an iteration.

        Raises:
            UsageError: Another one has not ended.
        """
        if self._in_iteration:
            raise UsageError("an iteration begins inside another one; end the first one before")
        self._in_iteration = True
        self._sequence.begin()
        self._choose_clocks()
        is_timed = self.megahertz or self.in_force.limit_watts is not None
        synchronize = self._synchronization() if is_timed else None
        self.instructions.begin(self._prepared_requests(), self.clocks.send, synchronize)
        self._interruptions = self._held()
        self._begin_seconds = self._now()

    def end_iteration(self, *, completed: bool) -> None:
        """End an iteration.

        Args:
            completed: Whether it ended without an exception; otherwise it does not count.
        """
        if completed and self.in_force.waits_at_end and (synchronize := self._synchronization()) is not None:
            # Otherwise the work of a block at free clocks would end, and take its energy, under the plan.
            synchronize()
        end_seconds = self._now()
        self._in_iteration = False
        stamps = self.instructions.stamps
        position = self.instructions.end()
        if not completed:
            return
        matches = self._sequence.end(position)
        self._warn_of_mismatch()
        if matches:
            self._done(
                IterationRecord(
                    self.iterations,
                    self.in_force.directive,
                    self._sequence.instructions,
                    self.megahertz,
                    self._begin_seconds,
                    end_seconds,
                    array("d", stamps[: 2 * position]),
                    interrupted=bool(self.megahertz)
                    and (self._interruptions < 0 or self._held() != self._interruptions),
                )
            )
        self.iterations += 1
        self.applied_directive = self.in_force.directive.number
        self._choose_clocks()

    def _held(self) -> int:
        """The number of interruptions so far; -1 while the clocks are not held."""
        return self.clocks.interruptions if self.clocks.is_holding else -1

    def _choose_clocks(self) -> None:
        before, chosen = self.in_force, self._clocks_of(self.iterations)
        if chosen.refusal and chosen.refusal != before.refusal:
            logger.warning("the clocks of this rank's instructions are free: %s", chosen.refusal)
        self.in_force = chosen
        if self.hold_limit is not None and chosen.limit_watts != before.limit_watts:
            self.hold_limit(chosen.limit_watts)
        # After a mismatch, clocks stay free until an iteration has the instructions of the sequence.
        self.megahertz = () if self._sequence.mismatch else chosen.megahertz
        if self.megahertz:
            self.clocks.send(self.clocks.request(self.megahertz[0]))
        else:
            self.clocks.free()

    def _prepared_requests(self) -> list[bytes | None]:
        """What is sent at the end of each instruction: the clock of the next one, if it differs."""
        clocks, megahertz = self.clocks, self.megahertz
        key = clocks, megahertz
        if self._requests[0] != key:
            changes = [None if after == before else clocks.request(after) for before, after in pairwise(megahertz)]
            self._requests = key, changes
        return self._requests[1]

    def _run_free(self) -> None:
        if self.megahertz:
            self.megahertz = ()
            self.clocks.free()
        self._warn_of_mismatch()

    def _warn_of_mismatch(self) -> None:
        mismatch = self._sequence.mismatch
        if mismatch and mismatch != self._reported_mismatch:
            logger.warning(
                "the instructions of iteration %d are not those of the sequence, so clocks are free: %s",
                self.iterations,
                mismatch,
            )
        self._reported_mismatch = mismatch
