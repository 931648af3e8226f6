"""Which directive is in force in an iteration, and the clocks that it gives to the instructions.

The clocks that may be held follow from the agent's descriptions of the GPUs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.knobs import Knobs
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive


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
            return (
                f"found {_listed(unsupported)} MHz, which {self.gpu_product or 'no GPU'} does not support: "
                f"it has {_described(self.supported_megahertz)}{_nearest(self.supported_megahertz, unsupported[0])}"
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

    Attributes:
        version: Changes whenever a received directive may change the clocks.

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
        self.version = 0

    def receive(self, directive: Directive) -> None:
        """Take an answer of the plan service. A late one, with a lower number, changes nothing."""
        with self._lock:
            self.acknowledged = max(self.acknowledged, directive.number)
            known = {self._in_force.number: self._in_force, **self._scheduled}
            if directive.first_iteration is None or directive.number < max(known):
                return
            if known.get(directive.number) != directive:
                self._scheduled[directive.number] = directive
                self.version += 1

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


def _nearest(clocks: tuple[int, ...], wanted: int) -> str:
    """The supported clock that is nearest to one between the others, as the end of a sentence."""
    return f", the nearest is {min(clocks, key=lambda clock: abs(clock - wanted))}" if clocks else ""


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
