"""Which directive is in force in an iteration, and the clocks that it gives to the instructions.

The clocks that may be held follow from the agent's descriptions of the GPUs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.knobs import Knobs
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive
from wattloop.pipeline.rank_plan_file import PlanRow, different_kind, knob_choices

logger = logging.getLogger("wattloop")


@dataclass(frozen=True)
class LocalDirective(Directive):
    """A directive that the rank's own process gives; it is in no message.

    Attributes:
        row: The plan's instructions in execution order, which the rank's are compared with; empty: no plan.
        gpu_product: The GPU model that the plan is for; empty: not known.
        limit_watts: The power limit of the rank's GPUs, with free clocks; None: none.
    """

    row: PlanRow = ()
    gpu_product: str = ""
    limit_watts: int | None = None

    @classmethod
    def of_plan(
        cls, number: int, first_iteration: int, row: PlanRow, gpu_product: str, reason: str = ""
    ) -> LocalDirective:
        """The directive of a plan."""
        return cls(
            number=number,
            mode=PLAN,
            first_iteration=first_iteration,
            clocks_megahertz=tuple(entry.megahertz for entry in row),
            knobs=knob_choices(row),
            reason=reason,
            row=row,
            gpu_product=gpu_product,
        )

    def refusal(self, gpu_product: str, kinds: Sequence[str]) -> str:
        """Why the plan is none of a rank with these GPUs and kinds of instructions; empty if it is."""
        if self.gpu_product and gpu_product != self.gpu_product:
            return f"the plan is for {self.gpu_product}, this rank has {gpu_product or 'no GPU'}"
        return different_kind(self.row, kinds)


@dataclass(frozen=True)
class IterationClocks:
    """The clocks of one iteration.

    Attributes:
        directive: The directive in force.
        megahertz: The clock of each instruction in execution order; empty: free clocks.
        refusal: Why the clocks are free although the directive gives some; empty if it gives none.
        knobs: The knobs of each instruction; empty: none.
        waits_at_end: Whether the end of the iteration waits until the GPUs have done the queued work, which at free
            clocks no instruction does.
        limit_watts: The power limit of the rank's GPUs, with free clocks; None: none.
    """

    directive: Directive = field(default_factory=Directive)
    megahertz: tuple[int, ...] = ()
    refusal: str = ""
    knobs: tuple[Knobs, ...] = ()
    waits_at_end: bool = False
    limit_watts: int | None = None


@dataclass(frozen=True)
class AllowedClocks:
    """The graphics clocks that may be held on all GPUs of a process.

    Attributes:
        gpu_product: Product name of the GPUs.
        supported_megahertz: The clocks that every GPU supports, in ascending order.
        allowed_megahertz: Those of them that administrator and policies allow, in ascending order.
    """

    gpu_product: str = ""
    supported_megahertz: tuple[int, ...] = ()
    allowed_megahertz: tuple[int, ...] = ()

    def refusal(self, megahertz: tuple[int, ...]) -> str:
        """Why these clocks may not be held; empty if they may.

        Example:
            >>> clocks = AllowedClocks("NVIDIA A40", (900, 915, 930), (915, 930))
            >>> clocks.refusal((915, 930, 915))
            ''
            >>> clocks.refusal((915, 980))
            'found 980 MHz, which NVIDIA A40 does not support: it has 3 clocks from 900 to 930 MHz, the nearest is 930'
            >>> clocks.refusal((900,))
            'found 900 MHz, which the policies of this node do not allow on NVIDIA A40: from 915 to 930 MHz'
        """
        unsupported = sorted(set(megahertz) - set(self.supported_megahertz))
        if unsupported:
            distances = {abs(clock - unsupported[0]): clock for clock in reversed(self.supported_megahertz)}
            nearest = f", the nearest is {distances[min(distances)]}" if distances else ""
            return (
                f"found {_listed(unsupported)} MHz, which {self.gpu_product or 'no GPU'} does not support: "
                f"it has {_described(self.supported_megahertz)}{nearest}"
            )
        forbidden = sorted(set(megahertz) - set(self.allowed_megahertz))
        if forbidden:
            allowed = _described(self.allowed_megahertz, "") if self.allowed_megahertz else "none"
            return (
                f"found {_listed(forbidden)} MHz, which the policies of this node do not allow on "
                f"{self.gpu_product}: {allowed}"
            )
        return ""


class DirectiveState:
    """The directives that a rank has received. Threads may share it.

    A directive takes effect in two phases, so that all ranks switch at the same iteration: each rank
    acknowledges its number, and then receives it again with `first_iteration`. Until then, the one before
    stays in force.

    Example:
        >>> state = DirectiveState()
        >>> state.receive(Directive(number=1, mode="Plan", clocks_megahertz=(900,)))
        >>> state.acknowledged, state.in_force(7).number
        (1, 0)
        >>> state.receive(Directive(number=1, mode="Plan", first_iteration=9, clocks_megahertz=(900,)))
        >>> [state.in_force(iteration).number for iteration in (8, 9, 10)]
        [0, 1, 1]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_force = Directive()
        # Those that have not begun.
        self._scheduled: dict[int, Directive] = {}
        self.acknowledged = 0

    def receive(self, directive: Directive) -> None:
        """Take an answer of the plan service. A late one, with a lower number, changes nothing."""
        with self._lock:
            self.acknowledged = max(self.acknowledged, directive.number)
            known = {self._in_force.number: self._in_force, **self._scheduled}
            if directive.first_iteration is None or directive.number < max(known):
                return
            if known.get(directive.number) != directive:
                self._scheduled[directive.number] = directive

    def in_force(self, iteration: int) -> Directive:
        """The directive with the highest number that has begun by this iteration; the one before stays until then.

        Call it with increasing iterations: directives before that one are forgotten.
        """
        with self._lock:
            begun = [number for number, each in self._scheduled.items() if (each.first_iteration or 0) <= iteration]
            if begun:
                newest = max(begun)
                self._in_force = self._scheduled[newest]
                self._scheduled = {number: each for number, each in self._scheduled.items() if number > newest}
            return self._in_force


def iteration_clocks(
    directive: Directive,
    iteration: int,
    instructions: int,
    allowed: AllowedClocks,
    profiling_clock: Callable[[Directive, int], int | None],
) -> IterationClocks:
    """The clocks of an iteration under a directive.

    Args:
        directive: The directive in force.
        iteration: Number of the iteration.
        instructions: Number of instructions of an iteration.
        allowed: The clocks that may be held.
        profiling_clock: Gives the clock of a profiling iteration; None: free clocks.
    """
    if directive.mode == FREE or not instructions:
        return IterationClocks(directive)
    if directive.mode == PLAN:
        clocks = directive.clocks_megahertz
        if len(clocks) != instructions:
            return IterationClocks(
                directive, refusal=f"the plan has {len(clocks)} clocks, this rank {instructions} instructions"
            )
    else:
        clock = profiling_clock(directive, iteration)
        clocks = () if clock is None else (clock,) * instructions
    refusal = allowed.refusal(clocks)
    if refusal:
        return IterationClocks(directive, refusal=refusal)
    return IterationClocks(directive, clocks, knobs=() if directive.knobs is None else directive.knobs.by_instruction())


def _listed(clocks: list[int]) -> str:
    shown = ", ".join(map(str, clocks[:3]))
    return f"{shown} and {len(clocks) - 3} more" if len(clocks) > 3 else shown


def _described(clocks: tuple[int, ...], number: str = "{} clocks ") -> str:
    return f"{number.format(len(clocks))}from {clocks[0]} to {clocks[-1]} MHz" if clocks else "no clocks"


def allowed_clocks(gpus: Sequence[GpuDescription]) -> AllowedClocks:
    """The clocks that every GPU supports and that the caller may request on every one.

    Example:
        >>> from wattloop.gpus.agent import GraphicsClocks
        >>> gpus = [
        ...     GpuDescription("GPU-1", "NVIDIA A40", 0, None, GraphicsClocks((900, 915, 930), (900, 930))),
        ...     GpuDescription("GPU-2", "NVIDIA A40", 1, None, GraphicsClocks((900, 915, 930), (915, 930))),
        ... ]
        >>> allowed_clocks(gpus)
        AllowedClocks(gpu_product='NVIDIA A40', supported_megahertz=(900, 915, 930), allowed_megahertz=(915, 930))
    """
    products = sorted({gpu.name for gpu in gpus})
    described = [gpu.clocks for gpu in gpus if gpu.clocks is not None]
    if not described or len(described) < len(gpus):
        return AllowedClocks(", ".join(products))
    supported = set(described[0].supported_megahertz).intersection(*(each.supported_megahertz for each in described))
    allowed = supported
    for each in described:
        low, high = each.allowed_megahertz or (1.0, 0.0)
        allowed = {clock for clock in allowed if low <= clock <= high}
    return AllowedClocks(", ".join(products), tuple(sorted(supported)), tuple(sorted(allowed)))


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
        self._refused: tuple[int, str] = (0, "")
        self.allowed = AllowedClocks()
        self.chosen = IterationClocks()

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
        instructions = self._sequence.instructions
        if isinstance(directive, LocalDirective):
            if directive.limit_watts is not None:
                return IterationClocks(directive, limit_watts=directive.limit_watts)
            if directive.row and instructions:
                refusal = directive.refusal(self.allowed.gpu_product, [each.kind for each in instructions])
                if refusal:
                    return IterationClocks(directive, refusal=refusal)
        return iteration_clocks(directive, iteration, len(instructions), self.allowed, self._profiling_clock)


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
