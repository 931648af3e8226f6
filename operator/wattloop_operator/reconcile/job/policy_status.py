"""What the policy knows of each configuration, and what it would decide next, in the status of a job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from wattloop_operator.api.recurring_training_job_status import (
    ArmStatus,
    BestConfiguration,
    NextRecurrence,
    RecentRecurrence,
)
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.decision import (
    decision_context,
    next_recurrence,
    policy_decision,
    rounded_cost,
)
from wattloop_operator.reconcile.learning.guarded_job import guard_of, shortfall_text
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.feasible_arms import crashes_in_a_row, missed_attempts
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, NoFeasibleArmError
from wattloop_planner.estimate import RunCost

# Of up to 256 configurations.
MAX_ARMS = 64
FIELDS = ("arms", "best")


def policy_status(
    snapshot: Snapshot, recent: tuple[RecentRecurrence, ...], default: RunCost | None, next_start: datetime | None
) -> dict[str, Any]:
    """The policy's estimates by configuration, and the next recurrence with its decision.

    They are computed again only if an input has changed. What runs will have ended when the next recurrence is decided,
    unless recurrences overlap, so the policy does not decide beside it.

    `next_start`: when the next recurrence starts; None if that is not known.
    """
    before = snapshot.job.status
    if before.next is not None and _is_current(snapshot, recent):
        kept = {name: getattr(before, name) for name in FIELDS}
        return kept | {"next": before.next.model_copy(update={"time": next_start})}
    unknown = None if next_start is None else NextRecurrence(time=next_start)
    try:
        context, decision = _decision_now(snapshot, default)
    except NoFeasibleArmError:
        return {"arms": (), "best": None, "next": unknown}
    tried = [arm for arm in decision.arms if arm.observations and arm.mean_cost_joules is not None and not arm.pruned]
    incumbent = [arm for arm in tried if arm.configuration == decision.incumbent]
    best = min(incumbent or tried, key=lambda arm: arm.mean_cost_joules or 0.0, default=None)
    with suppress(NoFeasibleArmError):
        unknown = next_recurrence(snapshot, context, decision).model_copy(update={"time": next_start})
    return {
        "arms": _arm_statuses(snapshot, context, decision),
        "best": None
        if best is None
        else BestConfiguration(batch_size=best.batch_size, parameters=dict(best.parameters)),
        "next": unknown,
    }


def _decision_now(snapshot: Snapshot, default: RunCost | None) -> tuple[DecisionContext, Decision]:
    """What the policy decides for the next recurrence, beside no other; the default costs what the savings say.

    Raises:
        NoFeasibleArmError: No feasible batch size is left.
    """
    context = replace(decision_context(snapshot, next_index(snapshot), 0), running=())
    decision = policy_decision(snapshot, context)
    if default is not None and known_attempts(snapshot).profile(context.default_batch_size) is None:
        # No limit was chosen for the default configuration, so both are of the same runs, unless the policy has seen a
        # change that is too small to part the savings.
        configuration = context.space.configurations[context.space.default]
        ran = (arm.observations and arm.configuration == configuration for arm in decision.arms)
        arms = (arm.with_cost(default) if own else arm for arm, own in zip(decision.arms, ran, strict=True))
        decision = replace(decision, arms=tuple(arms))
    return context, decision


def _is_current(snapshot: Snapshot, recent: tuple[RecentRecurrence, ...]) -> bool:
    before, job = snapshot.job.status, snapshot.job
    if job.spec.batch_size.learn_from:
        # The job that it learns from may have run since.
        return False
    unchanged = before.recent_recurrences == recent and before.observed_generation == job.metadata.generation
    return unchanged and before.next is not None and before.next.batch_size is not None


def _arm_statuses(snapshot: Snapshot, context: DecisionContext, decision: Decision) -> tuple[ArmStatus, ...]:
    space = context.space
    crashes, missed = crashes_in_a_row(space, context.observations), missed_attempts(context)
    informative = (each for each in context.observations if each.gives_epochs)
    ran = Counter(arm for each in informative if (arm := context.arm_of(each)) is not None)
    guard = guard_of(snapshot)
    short = {} if guard is None else guard.short
    return tuple(
        ArmStatus.model_validate(
            {
                "batch_size": arm.batch_size,
                "parameters": dict(arm.parameters),
                "observations": ran[space.arm(arm.batch_size, arm.parameters)],
                "missed": missed[space.arm(arm.batch_size, arm.parameters)],
                "mean_cost_joules": rounded_cost(arm.mean_cost_joules),
                "low_cost_joules": rounded_cost(arm.low_cost_joules),
                "high_cost_joules": rounded_cost(arm.high_cost_joules),
                "crashes": crashes.get(space.arm(arm.batch_size, arm.parameters), 0),
                "pruned": arm.pruned,
                "note": (
                    shortfall_text(configuration, short[configuration], snapshot)
                    if (configuration := arm.configuration) in short
                    else arm.note
                )[:512],
            }
        )
        for arm in _shown(decision.arms or _without_estimates(space, {*ran, *crashes}))
    )


def _without_estimates(space: ConfigurationSpace, ran: Collection[int]) -> list[Arm]:
    """The arms that ran, where the policy has an estimate of none: no attempt has reached the target."""
    chosen = [space.configurations[arm] for arm in sorted(ran)]
    return [Arm(each.batch_size, observations=0, parameters=each.parameters) for each in chosen]


def _shown(arms: Sequence[Arm]) -> list[Arm]:
    def rank(arm: Arm) -> tuple[bool, float]:
        return not arm.observations, math.inf if arm.mean_cost_joules is None else arm.mean_cost_joules

    shown = {id(arm) for arm in sorted(arms, key=rank)[:MAX_ARMS]}
    return [arm for arm in arms if id(arm) in shown]
