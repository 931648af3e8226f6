"""The FrequencyPlan of a pipeline: the object that holds its frontier, from the pipeline's state."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from wattloop_operator.api.frequency_plan import FrequencyPlan, FrequencyPlanSpec
from wattloop_operator.api.meta import ObjectMeta, OwnerReference
from wattloop_operator.domain.names import JOB_LABEL
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineState
from wattloop_operator.reconcile.pipeline.profile import instructions_by_pipeline_rank

if TYPE_CHECKING:
    from wattloop_planner.frequency.files.archive import PlanArchive
    from wattloop_planner.frequency.pipeline.instruction_profiles import PlannedSetting

DIGEST_CHARACTERS = 10


def plan_object(state: PipelineState, job: OwnerReference) -> FrequencyPlan | None:
    """The FrequencyPlan that the operator makes for a planned pipeline; None without a frontier.

    Its name follows from the job and the content. So the same frontier has the same object in all recurrences, and a
    new frontier has a new object.

    Args:
        state: The pipeline.
        job: Its RecurringTrainingJob, which owns the object.

    Raises:
        InputError: The frontier is too large for an object.
    """
    frontier = state.frontier
    if frontier is None or not frontier.points or not state.ranks:
        return None
    # Deferred here and below: the operator is ready before it imports NumPy.
    from wattloop_planner.frequency.files.archive import MAX_MANIFEST_BYTES, write_within  # noqa: PLC0415

    archive, data = write_within(archive_of_frontier(state, frontier), MAX_MANIFEST_BYTES)
    digest = hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]
    return FrequencyPlan(
        metadata=ObjectMeta(
            name=f"{job.name}-{digest}",
            namespace=state.namespace,
            labels={JOB_LABEL: job.name},
            owner_references=(job,),
        ),
        spec=FrequencyPlanSpec(gpu_product=archive.gpu_product or None, archive=base64.b64encode(data).decode("ascii")),
    )


def archive_of_frontier(state: PipelineState, frontier: PipelineFrontier) -> PlanArchive:
    """A frontier with the pipeline that it is for."""
    from wattloop_planner.frequency.files.archive import PlanArchive, PlannedPoint  # noqa: PLC0415
    from wattloop_planner.frequency.pipeline.instruction_profiles import PlannedSetting  # noqa: PLC0415
    from wattloop_planner.frequency.pipeline.plans import Realised  # noqa: PLC0415

    registration = state.registration
    settings: dict[PlannedSetting, int] = {}
    points = tuple(
        PlannedPoint(
            Realised(point.time_seconds, point.energy_joules),
            tuple(
                tuple(settings.setdefault(PlannedSetting(clock), len(settings)) for clock in row)
                for row in point.clocks_megahertz
            ),
        )
        for point in frontier.points
    )
    highest = frontier.highest_clocks or frontier.points[-1]
    return PlanArchive(
        registration.schedule,
        registration.microbatches,
        registration.gpu_product,
        frontier.blocking_watts,
        (),
        Realised(highest.time_seconds, highest.energy_joules),
        tuple(instructions_by_pipeline_rank(state).values()),
        tuple(settings),
        points,
    )
