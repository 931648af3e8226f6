"""The frontier of a user's FrequencyPlan, if it fits the ranks: their GPUs, their instructions, their clocks."""

import itertools
from collections.abc import Iterable, Sequence

from wattloop.errors import InputError, UsageError
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.knobs import MAX_KNOB_SETTINGS, KnobChoices
from wattloop.wire.message_fields import MessageError
from wattloop_operator.api.frequency_plan import PlannedOperation, decode_archive
from wattloop_operator.reconcile.pipeline.pipeline_state import FrontierPoint, GivenPlan, PipelineFrontier, max_points
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reconcile.pipeline.registrations import first_difference
from wattloop_planner.frequency.files.archive import PlanArchive
from wattloop_planner.frequency.pipeline.instruction_profiles import canonical_instruction

MAX_NAMED_CLOCKS = 3


def given_frontier(request: PlanningRequest, given: GivenPlan) -> PipelineFrontier:
    """The frontier of a given plan.

    Raises:
        UsageError: The plan does not exist, or a message to the ranks cannot have its knobs.
        InputError: It is invalid, or does not fit the ranks; the message names both sides.
    """
    spec, source = given.spec, f"FrequencyPlan {given.name}"
    if spec is None:
        raise UsageError(given.problem)
    product = spec.gpu_product or ""
    if spec.archive is not None:
        archive = decode_archive(spec.archive)
        _check_product(source, product or archive.gpu_product, request)
        _check_instructions(source, archive.instructions, request.instructions)
        _check_clocks(source, archive.clocks_megahertz, request)
        return _frontier_of(source, archive.thinned(max_points(sum(map(len, archive.instructions)))), request)
    rows = [stage.operations for stage in spec.stages or ()]
    _check_product(source, product, request)
    # The operations of a listed plan have no microbatch.
    planned = [[canonical_instruction(each.instruction) for each in row] for row in rows]
    registered = [[Instruction.of(text).kind for text in texts] for texts in request.instructions]
    _check_instructions(source, planned, registered)
    clocks = tuple(tuple(each.megahertz for each in row) for row in rows)
    _check_clocks(source, (clock for row in clocks for clock in row), request)
    time, energy = float(spec.time_seconds or 0), float(spec.energy_joules or 0)
    knobs = _listed_knobs(source, rows)
    if knobs is None:
        return PipelineFrontier(request.profile_digest, (FrontierPoint(time, energy, clocks),))
    choices = iter(knobs.choices)
    chosen = tuple(tuple(itertools.islice(choices, len(row))) for row in rows)
    point = FrontierPoint(time, energy, clocks, chosen)
    return PipelineFrontier(request.profile_digest, (point,), knobs=knobs.names, knob_settings=knobs.settings)


def _listed_knobs(source: str, rows: Sequence[Sequence[PlannedOperation]]) -> KnobChoices | None:
    """The knobs of a listed plan over all its operations; None if they have none."""
    operations = [(stage, place, each) for stage, row in enumerate(rows) for place, each in enumerate(row)]
    names = sorted(operations[0][2].knobs)
    for stage, place, each in operations:
        if sorted(each.knobs) != names:
            raise InputError(
                source,
                f"operation {place} of stage {stage} with the knobs {', '.join(sorted(each.knobs)) or 'none'}",
                f"those of the plan's first operation: {', '.join(names) or 'none'}",
            )
    try:
        return KnobChoices.of([dict(sorted(each.knobs.items())) for _, _, each in operations])
    except MessageError as error:
        raise UsageError(f"{source}: {error}") from error


def _frontier_of(source: str, archive: PlanArchive, request: PlanningRequest) -> PipelineFrontier:
    settings: dict[tuple[str, ...], int] = {}
    choice_of = [settings.setdefault(setting.knobs, len(settings)) for setting in archive.settings]
    if len(settings) > MAX_KNOB_SETTINGS:
        raise InputError(source, f"{len(settings)} combinations of knobs", f"at most {MAX_KNOB_SETTINGS}")
    points = tuple(
        FrontierPoint(
            point.realised.time_seconds,
            point.realised.energy_joules,
            tuple(archive.stage_clocks(number, stage) for stage in range(archive.stages)),
            tuple(tuple(choice_of[each] for each in row) for row in point.choices) if archive.knobs else (),
        )
        for number, point in enumerate(archive.points)
    )
    highest = FrontierPoint(
        archive.max_clocks.time_seconds, archive.max_clocks.energy_joules, points[-1].clocks_megahertz
    )
    return PipelineFrontier(
        request.profile_digest,
        points,
        highest,
        archive.blocking_power_watts,
        knobs=archive.knobs,
        knob_settings=tuple(settings) if archive.knobs else (),
    )


def _check_product(source: str, product: str, request: PlanningRequest) -> None:
    if product and request.gpu_product and product != request.gpu_product:
        expected = f"one for {request.gpu_product}, which the ranks have"
        raise InputError(source, f"a plan for {product}", expected)


def _check_instructions(source: str, planned: Sequence[Sequence[str]], registered: Sequence[Sequence[str]]) -> None:
    if len(planned) != len(registered):
        expected = f"one of {len(registered)}, as the ranks registered"
        raise InputError(source, f"a plan of {len(planned)} stages", expected)
    for stage, (mine, its) in enumerate(zip(planned, registered, strict=True)):
        difference = first_difference(mine, its)
        if difference is not None:
            expected = f"the instructions that pipeline rank {stage} registered"
            raise InputError(source, f"a plan whose stage {stage} differs: {difference}", expected)


def _check_clocks(source: str, clocks: Iterable[int], request: PlanningRequest) -> None:
    """Check that every rank may hold the clocks: its GPUs have them, and the policies of its node allow them."""
    allowed = request.clocks_megahertz
    if impossible := sorted(set(clocks) - set(allowed)):
        shown = ", ".join(map(str, impossible[:MAX_NAMED_CLOCKS])) + (" …" if impossible[MAX_NAMED_CLOCKS:] else "")
        bounds = f"{allowed[0]} to {allowed[-1]} MHz" if allowed else "none"
        raise InputError(
            source,
            f"clocks of {shown} MHz",
            f"clocks that the GPUs of all ranks ({request.gpu_product}) have and the policies of their nodes allow: "
            f"{bounds}, {len(allowed)} clocks",
        )
