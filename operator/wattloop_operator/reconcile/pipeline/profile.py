"""Which clocks of a pipeline are still to be measured, and what a frontier is planned from."""

import hashlib
import json
import math
from dataclasses import dataclass

from wattloop.pipeline.clock_profiling import CLOCKS_OF_BLOCKING_POWER, clocks_left, spaced_clocks
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.plan_messages import PROFILE
from wattloop.wire.item_cache import cached_by_items
from wattloop_operator.reconcile.pipeline.liveness import slowest_iteration
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_CACHED_INSTRUCTIONS,
    GivenPlan,
    PipelineState,
    RankMeasurements,
)

# Further clocks are interpolated. Energy per instruction is smooth in the clock, and most ranks stop half-way down.
MAX_PROFILED_CLOCKS = 16
PROFILE_SECONDS_PER_CLOCK = 5.0
MIN_ITERATIONS_PER_CLOCK, MAX_ITERATIONS_PER_CLOCK = 3, 1_000


def common_clocks(state: PipelineState) -> tuple[int, ...]:
    """The clocks that every rank may hold, in ascending order."""
    common: set[int] | None = None
    for clocks in {rank.registration.clocks_megahertz for rank in state.ranks.values()}:
        common = set(clocks) if common is None else common & set(clocks)
    return tuple(sorted(common or ()))


def remaining_clocks(state: PipelineState) -> tuple[int, ...]:
    """The clocks that some pipeline rank has not measured yet, from the highest down; empty if the profile is complete.

    A pipeline rank is complete if a process of it has measured all the clocks it was to measure; a rank whose energy
    rises measures fewer clocks and is complete. If the energy of a kind of instruction was uncertain at every clock, a
    later recurrence measures again: without any energy there is no plan, and more measurements may tell it.
    """
    if state.profile is None or state.job_plan.given is not None:
        return ()
    common = common_clocks(state)
    clocks = spaced_clocks(common, MAX_PROFILED_CLOCKS) if common else ()
    missing: set[int] = set()
    for pipeline_rank, instructions in instructions_by_pipeline_rank(state).items():
        measured = state.profile.measured.get(pipeline_rank, {})
        kinds = kinds_of(instructions)
        is_known = all(any(kind in measured.get(clock, ()) for clock in clocks) for kind in kinds)
        if pipeline_rank in state.profile.profiled_pipeline_ranks and (is_known or _has_profiled(state)):
            continue
        missing.update(clocks_left(clocks, kinds, measured))
    if not missing and not _has_blocking_power(state) and not _has_profiled(state):
        # An earlier recurrence could not tell waiting from working; more measurements may.
        return clocks[:CLOCKS_OF_BLOCKING_POWER]
    return tuple(clock for clock in clocks if clock in missing)


def _has_blocking_power(state: PipelineState) -> bool:
    """Whether the power of a waiting rank is known, or no rank waits for another one."""
    assert state.profile is not None
    if len(instructions_by_pipeline_rank(state)) < 2:
        return True
    return any(process.blocking_watts is not None for process in state.profile.processes.values())


def _has_profiled(state: PipelineState) -> bool:
    """Whether a process of this attempt has measured all that it was to measure."""
    assert state.profile is not None
    mine = ((number, rank.registration.process) for number, rank in state.ranks.items())
    return any(pair in state.profile.processes and state.profile.processes[pair].profiled for pair in mine)


def is_profiled(state: PipelineState) -> bool:
    """Whether the profile is complete, and no rank still measures; a given plan needs none."""
    if state.job_plan.given is not None:
        return True
    if state.directive.mode == PROFILE and not all(
        rank.finished or rank.mismatch or (rank.report is not None and rank.report.profiled)
        for rank in state.ranks.values()
    ):
        return False
    return not remaining_clocks(state)


def iterations_per_clock(state: PipelineState) -> int:
    """Iterations that give the energy counters, which step every 100 ms, time enough for each kind of instruction."""
    wanted = math.ceil(PROFILE_SECONDS_PER_CLOCK / slowest_iteration(state))
    return min(max(wanted, MIN_ITERATIONS_PER_CLOCK), MAX_ITERATIONS_PER_CLOCK)


def instructions_by_pipeline_rank(state: PipelineState) -> dict[int, tuple[str, ...]]:
    """The instructions of each pipeline rank, in execution order."""
    found: dict[int, tuple[str, ...]] = {}
    for rank in state.ranks.values():
        found.setdefault(rank.registration.pipeline_rank, rank.registration.instructions)
    return dict(sorted(found.items()))


@cached_by_items(MAX_CACHED_INSTRUCTIONS)
def kinds_of(instructions: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The kinds and stages of instructions, in order."""
    read = (Instruction.of(text) for text in instructions)
    return tuple(sorted({(each.kind, each.stage) for each in read}))


def profile_digest(state: PipelineState) -> str:
    """Digest of what a frontier is planned from: instructions, clocks, and which processes have measured them.

    A process that is through only refines what it has measured; that is no reason to plan again.
    """
    assert state.profile is not None
    instructions = [_sequence_digest(each) for each in instructions_by_pipeline_rank(state).values()]
    if (given := state.job_plan.given) is not None:
        return _digest(json.dumps([instructions, common_clocks(state), given.name, given.digest]))
    parts = (
        json.dumps(instructions),
        json.dumps(common_clocks(state)),
        state.profile.processes_json,
        json.dumps(_has_blocking_power(state)),
    )
    return _digest(f"[{', '.join(parts)}]")


@dataclass(frozen=True)
class PlanningRequest:
    """What a frontier is planned from.

    Attributes:
        profile_digest: See the function `profile_digest`.
        instructions: Instructions of each pipeline rank, in execution order.
        clocks_megahertz: The clocks that every rank may hold.
        processes: The measurements.
        gpu_product: Product name of the ranks' GPUs.
        given: The user's plan, which is then used as it is; None if the planner plans.
    """

    profile_digest: str
    instructions: tuple[tuple[str, ...], ...]
    clocks_megahertz: tuple[int, ...]
    processes: tuple[RankMeasurements, ...]
    gpu_product: str = ""
    given: GivenPlan | None = None


def planning_request(state: PipelineState) -> PlanningRequest:
    """What the planner needs of a state whose profile is complete."""
    assert state.profile is not None
    given = state.job_plan.given
    return PlanningRequest(
        profile_digest(state),
        tuple(instructions_by_pipeline_rank(state).values()),
        common_clocks(state),
        () if given is not None else tuple(each for _, each in sorted(state.profile.processes.items())),
        state.profile.key.gpu_product,
        given,
    )


@cached_by_items(MAX_CACHED_INSTRUCTIONS)
def _sequence_digest(instructions: tuple[str, ...]) -> str:
    return _digest("\n".join(instructions))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
