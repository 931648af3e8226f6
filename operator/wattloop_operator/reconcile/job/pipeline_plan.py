"""What the status of a job says of the frequency plan of its pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from wattloop.pipeline.plan_messages import PLAN
from wattloop_operator.api.applied_plan import JobFrequencyPlan
from wattloop_operator.domain.snapshot import Snapshot

PLAN_AVAILABLE = "PlanAvailable"
# Reasons with which it is False; each is an Event, too.
NOT_FOUND, NO_PLAN = "FrequencyPlanNotFound", "NoFrequencyPlan"


def job_frequency_plan(snapshot: Snapshot) -> JobFrequencyPlan | None:
    """The plan of the newest attempt that ran as a pipeline; kept when that attempt is deleted."""
    newest = max(
        (each for each in snapshot.recurrences if each.status.frequency_plan is not None),
        key=lambda each: each.order,
        default=None,
    )
    applied = None if newest is None else newest.status.frequency_plan
    if newest is None or applied is None:
        return snapshot.job.status.frequency_plan
    return JobFrequencyPlan(
        recurrence=newest.metadata.name,
        name=applied.name,
        mode=applied.mode,
        saving_percent=applied.saving_percent,
        reason=applied.reason,
        problem=applied.problem,
    )


def plan_available(snapshot: Snapshot) -> Iterator[tuple[str, bool | None, str, str]]:
    """Whether there is a plan for the job's pipeline; only for a job that plans it and whose ranks have registered.

    The FrequencyPlan that a job names is looked for by the writer of these statuses while an attempt runs. When it
    appears, the ranks run it without a restart.
    """
    power, applied = snapshot.job.spec.power, job_frequency_plan(snapshot)
    if power.clocks_by_plan is None or applied is None:
        return
    of_recurrence, reference = f"recurrence {applied.recurrence}", power.frequency_plan_ref
    if reference is not None and not applied.name:
        text = (
            f"{of_recurrence}: the job names FrequencyPlan {reference.name}, which does not exist in namespace "
            f"{snapshot.job.metadata.namespace}, so its ranks run at free clocks; create it, and running ranks get its "
            "clocks, or leave power.frequencyPlanRef out"
        )
        yield PLAN_AVAILABLE, False, NOT_FOUND, text
    elif applied.problem:
        yield PLAN_AVAILABLE, False, NO_PLAN, f"{of_recurrence} runs at free clocks: {applied.problem}"
    elif applied.name or applied.mode == PLAN:
        plan = f"FrequencyPlan {applied.name}" if applied.name else "a plan from its profile"
        yield PLAN_AVAILABLE, True, "Planned", f"{of_recurrence}: {plan}"
    else:
        yield PLAN_AVAILABLE, None, "NotProfiled", f"{of_recurrence}: {applied.reason}"
