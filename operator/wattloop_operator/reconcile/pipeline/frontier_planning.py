"""Plans a pipeline: from the measurements of its ranks to the plans along its frontier.

Runs in a process of its own; see `wattloop_operator.reporting.plan_worker`.
"""

import graphlib
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from wattloop.errors import InputError, UsageError
from wattloop.pipeline.clock_profiling import spaced_clocks
from wattloop.pipeline.instruction import Instruction
from wattloop.wire.training_messages import MAX_NUMBER, MAX_TIME_SECONDS
from wattloop_operator.reconcile.pipeline.given_plan import given_frontier
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    FrontierPoint,
    PipelineFrontier,
    RankMeasurements,
    max_points,
)
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_planner.frequency import (
    OperationGraph,
    Problem,
    Profile,
    evaluate,
    pipeline_problem,
    plan_frequencies,
    plan_pipeline,
)
from wattloop_planner.frequency.pipeline.clock_interpolation import interpolated
from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement, merged_profile

# No instruction is shorter or takes less; the squares of smaller numbers, which weigh measurements, would be zero.
MIN_INSTRUCTION_SECONDS, MIN_INSTRUCTION_JOULES = 1e-7, 1e-6
# Of each kind of instruction: the measured clocks, and interpolated ones between them.
MAX_OPTIONS = 64
BACKWARD_KINDS = frozenset({"backward", "forwardbackward", "backwardinput"})
SOURCE = "the profile"
MAX_NOTES, MAX_NOTE_CHARACTERS = 8, 300


def plan_frontier(request: PlanningRequest) -> PipelineFrontier:
    """Plan a pipeline; a profile or a schedule that has no plan gives a frontier with the problem."""
    try:
        return _planned(request) if request.given is None else given_frontier(request, request.given)
    except (InputError, UsageError) as error:
        return PipelineFrontier(request.profile_digest, problem=str(error))


def _planned(request: PlanningRequest) -> PipelineFrontier:
    operations = sum(map(len, request.instructions))
    blocking = blocking_watts(request.processes, len(request.instructions))
    graph = instruction_graph(request.instructions)
    profile = profile_of_request(request)
    problem = pipeline_problem(graph, profile, blocking)
    count = max_points(operations)
    plans = [
        [[int(clock) for clock in row] for row in plan_frequencies(problem, plan)]
        for plan in plan_pipeline(problem, count).plans
    ]
    highest = [[max(problem.measured[graph.kind_of[each]]) for each in order.tolist()] for order in graph.order]
    points = tuple(_point(problem, clocks) for clocks in plans)
    slowest, dearest = max(each.time_seconds for each in points), max(each.energy_joules for each in points)
    if slowest > MAX_TIME_SECONDS or dearest > MAX_NUMBER:
        found = f"an iteration of {slowest:g} s and {dearest:g} J"
        raise InputError(SOURCE, found, f"at most {MAX_TIME_SECONDS:g} s and {MAX_NUMBER:g} J")
    notes = tuple(note[:MAX_NOTE_CHARACTERS] for note in profile.notes[:MAX_NOTES])
    return PipelineFrontier(request.profile_digest, points, _point(problem, highest), blocking, notes=notes)


def _point(problem: Problem, clocks: list[list[int]]) -> FrontierPoint:
    found = evaluate(problem, clocks)
    return FrontierPoint(found.time_seconds, found.energy_joules, tuple(map(tuple, clocks)))


def blocking_watts(processes: tuple[RankMeasurements, ...], pipeline_ranks: int) -> float:
    """Mean power of a rank that waits.

    Raises:
        InputError: No rank has measured it, and ranks of a pipeline of more than one wait.
    """
    measured = [each.blocking_watts for each in processes if each.blocking_watts is not None]
    if measured:
        return math.fsum(measured) / len(measured)
    if pipeline_ranks == 1:
        return 0.0
    raise InputError(SOURCE, "no power of a waiting rank", "one measured by at least one rank")


def profile_of_request(request: PlanningRequest) -> Profile:
    """The mean over all processes at each clock, with interpolated options at the clocks between.

    Raises:
        InputError: No process has measured an energy.
    """
    allowed = frozenset(request.clocks_megahertz)
    several = _have_several_stages(request.instructions)
    measurements = [
        ClockMeasurement(
            f"{process.rank} ({process.process[:8]})",
            process.pipeline_rank,
            _name(each.kind, each.stage, several=several),
            each.megahertz,
            each.time_seconds,
            each.energy_joules if each.energy_joules and each.energy_joules >= MIN_INSTRUCTION_JOULES else None,
            each.time_error_seconds,
            each.energy_error_joules,
        )
        for process in request.processes
        for each in process.measurements
        if each.time_seconds >= MIN_INSTRUCTION_SECONDS and each.megahertz in allowed
    ]
    clocks = request.clocks_megahertz
    return interpolated(
        merged_profile(SOURCE, measurements), spaced_clocks(clocks, MAX_OPTIONS) if len(clocks) > 1 else clocks
    )


def instruction_graph(instructions: tuple[tuple[str, ...], ...]) -> OperationGraph:
    """The graph of the instructions of all pipeline ranks.

    Each rank runs its instructions in order. A forward needs the forward of the stage before it, and a backward the
    backward of the stage after it, of the same microbatch.

    Raises:
        InputError: The instructions wait for each other.
    """
    several = _have_several_stages(instructions)
    read = [(rank, Instruction.of(text)) for rank, texts in enumerate(instructions) for text in texts]
    ends = itertools.accumulate(map(len, instructions), initial=0)
    order = [range(first, end) for first, end in itertools.pairwise(ends)]
    edges = {pair for row in order for pair in itertools.pairwise(row)} | _edges_between_stages(read)
    _check_acyclic(read, edges)
    names = [_name(each.kind, each.stage, several=several) for _, each in read]
    distinct = tuple(sorted(set(names)))
    index = {name: place for place, name in enumerate(distinct)}
    pairs = np.array(sorted(edges), dtype=np.int32).reshape(-1, 2)
    return OperationGraph(
        stages=len(instructions),
        microbatches=max(each.microbatch for _, each in read) + 1,
        instructions=distinct,
        stage_of=np.array([rank for rank, _ in read], dtype=np.int32),
        instruction_of=np.array([index[name] for name in names], dtype=np.int32),
        microbatch_of=np.array([each.microbatch for _, each in read], dtype=np.int32),
        chunk_of=np.zeros(len(read), dtype=np.int32),
        order=tuple(np.array(row, dtype=np.int32) for row in order),
        befores=np.ascontiguousarray(pairs[:, 0]),
        afters=np.ascontiguousarray(pairs[:, 1]),
    )


def _edges_between_stages(read: list[tuple[int, Instruction]]) -> set[tuple[int, int]]:
    forwards: dict[tuple[int, int], int] = {}
    backwards: dict[tuple[int, int], int] = {}
    for place, (_, each) in enumerate(read):
        if each.kind == "forward":
            forwards[each.stage, each.microbatch] = place
        elif each.kind in BACKWARD_KINDS:
            backwards[each.stage, each.microbatch] = place
    return _following(forwards, -1) | _following(backwards, 1)


def _following(places: Mapping[tuple[int, int], int], step: int) -> set[tuple[int, int]]:
    """Pairs of an instruction and the one that needs it; that one's stage is `step` before the first one's."""
    return {
        (places[stage + step, microbatch], place)
        for (stage, microbatch), place in places.items()
        if (stage + step, microbatch) in places
    }


def _check_acyclic(read: list[tuple[int, Instruction]], edges: set[tuple[int, int]]) -> None:
    before: dict[int, list[int]] = defaultdict(list)
    for first, second in edges:
        before[second].append(first)
    try:
        graphlib.TopologicalSorter(before).prepare()
    except graphlib.CycleError as error:
        cycle = " → ".join(f"{read[place][1].text} of rank {read[place][0]}" for place in error.args[1][:8])
        raise InputError("the schedule", f"instructions that wait for each other: {cycle}", "no cycle") from None


def _have_several_stages(instructions: tuple[tuple[str, ...], ...]) -> bool:
    return any(len({Instruction.of(text).stage for text in texts}) > 1 for texts in instructions)


def _name(kind: str, stage: int, *, several: bool) -> str:
    """The planner's name of a kind of instruction; of the stage, where a rank runs several."""
    return f"{kind} of stage {stage}" if several else kind
