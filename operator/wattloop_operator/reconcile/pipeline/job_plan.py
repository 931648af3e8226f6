"""How a job plans its pipelines: whether, by a FrequencyPlan of the user or its own, and which point of it runs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from wattloop.energy.cost import CostModel
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.power_fields import FrequencyPlanSettings, PlanChoiceRule
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    FrontierPoint,
    GivenPlan,
    JobPlan,
    PipelineFrontier,
    PipelineState,
    PlanChoice,
)

if TYPE_CHECKING:
    from wattloop_planner.frequency.choice_rules import ChosenPoint, Rule
    from wattloop_planner.frequency.pipeline.plans import Realised

NOT_PLANNED = "the job sets no clocks: power.mode is not None, or mode is Advise"


def job_plan(job: RecurringTrainingJob, recurrence: TrainingAttempt, plan: FrequencyPlan | None) -> JobPlan:
    """How a job plans the pipeline of an attempt.

    Args:
        job: The job.
        recurrence: The attempt.
        plan: The FrequencyPlan that the job names; None if it names none, or one that does not exist.
    """
    choice, name = choice_of_job(job.spec, recurrence), job.spec.power.named_plan
    if choice is None or job.spec.mode is Mode.ADVISE:
        return JobPlan(enabled=False)
    if name is None:
        return JobPlan(choice=choice)
    return JobPlan(choice=choice, given=_given(job.metadata.namespace, name, plan))


def _given(namespace: str, name: str, plan: FrequencyPlan | None) -> GivenPlan:
    if plan is None:
        problem = f"FrequencyPlan {namespace}/{name} does not exist; create it, or leave power.frequencyPlan.name out"
        return GivenPlan(name, digest="missing", problem=problem)
    digest = hashlib.sha256(json.dumps(plan.spec.to_wire(), sort_keys=True).encode()).hexdigest()[:32]
    return GivenPlan(name, digest, plan.spec)


def choice_of_job(spec: RecurringTrainingJobSpec, recurrence: TrainingAttempt) -> PlanChoice | None:
    """By which rule the pipelines of a job choose their plan; None if they get no clocks.

    Args:
        spec: The job as it is now.
        recurrence: The attempt; its progress has the maximum power of the GPUs.
    """
    settings: FrequencyPlanSettings | None = spec.power.clocks_by_plan
    if settings is None:
        return None
    return PlanChoice(
        mode=settings.choice.value,
        deadline_seconds=settings.deadline_seconds or None,
        energy_weight=recurrence.spec.energy_weight_percent / 100,
        max_power_watts=float(recurrence.progress.max_power_limit_watts or 0),
    )


def chosen_point(
    frontier: PipelineFrontier, state: PipelineState, straggler_seconds: float | None = None
) -> ChosenPoint:
    """The point that a pipeline runs; see `wattloop_planner.frequency.choice_rules.choose_point`.

    With choice Cost, as long as the maximum power of the GPUs is not known, no time is lost.
    """
    # Deferred here and below: the operator is ready before it imports NumPy.
    from wattloop_planner.frequency.choice_rules import choose_point  # noqa: PLC0415

    highest = frontier.highest_clocks or max(frontier.points, key=lambda point: -point.time_seconds)
    return choose_point(
        [_realised(point) for point in frontier.points],
        _rule(state),
        max_clocks=_realised(highest),
        straggler_seconds=straggler_seconds,
    )


def _rule(state: PipelineState) -> Rule:
    from wattloop_planner.frequency.choice_rules import CostRule, Deadline, FastestRule  # noqa: PLC0415

    choice = state.job_plan.choice
    if choice.mode == PlanChoiceRule.DEADLINE and choice.deadline_seconds:
        return Deadline(choice.deadline_seconds)
    if choice.mode == PlanChoiceRule.COST and choice.max_power_watts:
        # The plans' energy is that of one pipeline, and the maximum power that of all ranks.
        return CostRule(CostModel(choice.energy_weight, choice.max_power_watts / state.pipelines))
    return FastestRule()


def _realised(point: FrontierPoint) -> Realised:
    from wattloop_planner.frequency.pipeline.plans import Realised  # noqa: PLC0415

    return Realised(point.time_seconds, point.energy_joules)
