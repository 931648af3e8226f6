"""Chooses the clocks of each iteration: by the directive in force, unless it is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from wattloop.pipeline.directives import AllowedClocks, DirectiveState, IterationClocks, iteration_clocks
from wattloop.pipeline.instruction_sequence import InstructionSequence
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive
from wattloop.pipeline.rank_plan_file import PlanRow, different_kind, knob_choices

logger = logging.getLogger("wattloop")


class ClockChoice:
    """The clocks of each iteration of a rank.

    Args:
        state: The directives of the plan service.
        sequence: The instructions of the rank.
        profiling_clock: See `wattloop.pipeline.iteration_record.Observer`.

    Attributes:
        allowed: The clocks that may be held; none until the GPUs are known.
        chosen: The clocks chosen last, except those of free iterations under a plan.
    """

    def __init__(
        self,
        state: DirectiveState,
        sequence: InstructionSequence,
        profiling_clock: Callable[[Directive, int], int | None],
    ) -> None:
        self._state = state
        self._sequence = sequence
        self._profiling_clock = profiling_clock
        # With the GPU model that they are for, by the number of their directive.
        self._rows: dict[int, tuple[PlanRow, str]] = {}
        self._limits_watts: dict[int, int] = {}
        self._refused: tuple[int, str] = (0, "")
        self.allowed = AllowedClocks()
        self.chosen = IterationClocks()

    def give_plan(self, row: PlanRow, gpu_product: str = "") -> None:
        """Use a plan without the operator.

        Args:
            row: The instructions of this rank in execution order.
            gpu_product: The GPU model that the plan is for; empty: not known.
        """
        self.give_row(1, row, gpu_product)
        self._state.receive(
            Directive(
                number=1,
                mode=PLAN,
                first_iteration=0,
                clocks_megahertz=tuple(entry.megahertz for entry in row),
                knobs=knob_choices(row),
            )
        )

    def give_row(self, number: int, row: PlanRow, gpu_product: str) -> None:
        """Compare instructions and GPU of the rank with a plan's while the directive of this number is in force."""
        self._rows[number] = row, gpu_product

    def give_limit(self, number: int, watts: int) -> None:
        """Hold a power limit on the GPUs of the rank while the directive of this number is in force."""
        self._limits_watts[number] = watts

    def clocks_of(self, iteration: int, agent_refusal: str) -> IterationClocks:
        """The clocks of an iteration; call it with rising numbers.

        Args:
            iteration: Number of the iteration, from 0.
            agent_refusal: Why the agent holds none of the clocks chosen last; empty if it does.
        """
        directive = self._state.in_force(iteration)
        if directive.number != self.chosen.directive.number:
            _log_change(directive, iteration)
        if agent_refusal:
            # Until the next directive, or until free clocks between two trials of this one: the agent would
            # refuse the clock in every iteration.
            self._refused = self.chosen.directive.number, agent_refusal
        if directive.mode == FREE:
            self._refused = 0, ""
        refused, refusal = self._refused
        if refused == directive.number and refusal:
            if self.chosen.refusal != refusal:
                self.chosen = IterationClocks(directive, refusal=refusal)
        elif directive is not self.chosen.directive or directive.mode != PLAN or not self.chosen.megahertz:
            self.chosen = self._of(directive, iteration)
        if directive.free is not None and self.chosen.megahertz:
            part = directive.free.part(iteration - (directive.first_iteration or 0))
            if part.is_free:
                return IterationClocks(directive, waits_at_end=part.ends_block)
        return self.chosen

    def _of(self, directive: Directive, iteration: int) -> IterationClocks:
        if (watts := self._limits_watts.get(directive.number)) is not None:
            return IterationClocks(directive, limit_watts=watts)
        instructions = self._sequence.instructions
        row, gpu_product = self._rows.get(directive.number, ((), ""))
        if row and instructions:
            refusal = self._row_refusal(row, gpu_product, [each.kind for each in instructions])
            if refusal:
                return IterationClocks(directive, refusal=refusal)
        return iteration_clocks(directive, iteration, len(instructions), self.allowed, self._profiling_clock)

    def _row_refusal(self, row: PlanRow, gpu_product: str, kinds: Sequence[str]) -> str:
        found = self.allowed.gpu_product
        if gpu_product and found != gpu_product:
            return f"the plan is for {gpu_product}, this rank has {found or 'no GPU'}"
        return different_kind(row, kinds)


def _log_change(directive: Directive, iteration: int) -> None:
    first = directive.first_iteration or 0
    late = f", {iteration - first} iterations late" if directive.mode != FREE and 0 < first < iteration else ""
    logger.info(
        "directive %d from iteration %d on%s: %s%s",
        directive.number,
        iteration,
        late,
        directive.mode,
        f" ({directive.reason})" if directive.reason else "",
    )
