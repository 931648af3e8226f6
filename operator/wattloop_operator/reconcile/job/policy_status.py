"""What the policy knows, what it would decide next, and what was saved, in the status of a job."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job import Mode
from wattloop_operator.api.recurring_training_job_status import (
    ArmStatus,
    BestConfiguration,
    NextRecurrence,
    RecentRecurrence,
    Saving,
    SavingName,
)
from wattloop_operator.domain.quantities import (
    JOULES,
    JOULES_PER_KILOWATT_HOUR,
    KILOWATT_HOURS,
    MINUTES,
    NOT_KNOWN_YET,
    SECONDS,
    Unit,
    percent_text,
    saving_text,
)
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, MONEY_DECIMALS
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.advice import next_configuration, next_saving
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import (
    Measure,
    RecurrenceHistory,
    comparable_default,
    comparable_records,
)
from wattloop_operator.reconcile.learning.decision import (
    decision_context,
    next_recurrence,
    policy_decision,
    rounded_cost,
)
from wattloop_operator.reconcile.learning.guarded_job import guard_of, shortfall_text
from wattloop_operator.reconcile.learning.job_observations import default_configuration, known_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose, job_savings
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.feasible_arms import crashes_in_a_row, missed_attempts
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, NoFeasibleArmError
from wattloop_planner.estimate import Estimate, RunCost

ADVICE_CHECKED = "AdviceChecked"
MEASURED = "; measured: "


def advice_checked(snapshot: Snapshot, savings: JobSavings, now: datetime) -> tuple[Condition, ...]:
    """The condition with the expected and the measured saving of the advised configuration.

    Its message keeps what was expected. A job that was never in mode Advise, or is, has none.
    """
    expected = _expected(snapshot)
    if not expected:
        return ()
    records = known_records(snapshot)
    last = max((each.recurrence for each in records if each.decision_kind == DecisionKind.ADVISE.value), default=-1)
    ran = {
        each.recurrence
        for each in records
        if each.recurrence > last and expected.startswith(_subject(Configuration(each.batch_size, each.parameters)))
    }
    found = [each for each in savings.recurrences if each.has_saving and each.index in ran]
    held = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    indices = tuple(held or [each.index for each in found])
    measured = savings.of_all(indices)
    text = NOT_KNOWN_YET if measured is None else f"{saving_text(measured)} over {len(indices)} recurrence(s)"
    holds, reason = (None, "NotMeasured") if measured is None else (True, "Measured")
    message, before = f"{expected}{MEASURED}{text}.", snapshot.job.status.conditions
    return (condition(before, ADVICE_CHECKED, holds=holds, reason=reason, message=message, now=now),)


def _expected(snapshot: Snapshot) -> str:
    status = snapshot.job.status
    if snapshot.job.spec.mode is Mode.ADVISE:
        return ""
    if status.next is not None and status.next.kind is DecisionKind.ADVISE:
        saving = next_saving(status.next)
        return "" if saving is None else f"{_subject(next_configuration(status.next))}{saving_text(saving)}"
    messages = (each.message for each in status.conditions if each.type == ADVICE_CHECKED)
    return next(messages, "").partition(MEASURED)[0]


def _subject(configuration: Configuration) -> str:
    ordered = Configuration(configuration.batch_size, tuple(sorted(configuration.parameters)))
    return f"Mode Advise expected batch size {ordered} to cost "


PERCENT_DECIMALS = 2
PERCENT = Unit(1.0, "percent")


def savings_of(
    snapshot: Snapshot, left_out: frozenset[int] = frozenset(), measure: Measure = Measure.COST
) -> JobSavings:
    """The recurrences towards the present target, compared with the default configuration."""
    spec = snapshot.job.spec
    configuration, eta = default_configuration(spec), spec.objective.energy_weight_percent / 100
    default = comparable_default(
        comparable_records(snapshot), known_attempts(snapshot).profiles, configuration, eta=eta, measure=measure
    )
    return job_savings(
        job_observations.records_with_late_usage(snapshot),
        job_observations.known_profiles(snapshot),
        target=spec.objective.target.run_target,
        configuration=configuration,
        eta=eta,
        default=default,
        measure=measure,
        left_out=left_out,
    )


def savings_status(
    tariff: Tariff, ended: Sequence[RecurrenceHistory], costs: JobSavings, energy: JobSavings, time: JobSavings
) -> tuple[Saving, ...]:
    """The savings so far, with units; nothing before a recurrence has ended."""
    if not ended:
        return ()
    energy_text, time_text = KILOWATT_HOURS.interval_text, MINUTES.interval_text
    found = [
        _saving(SavingName.COST, PERCENT, percent_text, costs.saved_percent),
        _saving(SavingName.ENERGY, JOULES, energy_text, energy.saved),
        _saving(SavingName.TIME, SECONDS, time_text, time.saved),
    ]
    default = None if costs.default is None else costs.default.of_run
    further: list[tuple[SavingName, Unit, Callable[[Estimate | None], str], Estimate | None]] = [
        (SavingName.LATEST_COST, PERCENT, percent_text, costs.latest_percent),
        (SavingName.LEARNING_ENERGY, JOULES, energy_text, energy.learning),
        (SavingName.LEARNING_TIME, SECONDS, time_text, time.learning),
        (SavingName.DEFAULT_COST, JOULES, JOULES.interval_text, default),
    ]
    for name, unit_name, rate in (
        (SavingName.MONEY, tariff.currency, tariff.per_kilowatt_hour),
        (SavingName.CARBON, "g", tariff.grams_per_kilowatt_hour),
    ):
        if unit_name is not None and rate is not None and energy.saved is not None:
            unit, per_joule = Unit(1.0, unit_name), float(rate) / JOULES_PER_KILOWATT_HOUR
            further.append((name, unit, unit.interval_text, energy.saved.scaled(per_joule)))
    return *found, *(_saving(*each) for each in further if each[-1] is not None)


def _saving(name: SavingName, unit: Unit, text: Callable[[Estimate | None], str], estimate: Estimate | None) -> Saving:
    decimals = PERCENT_DECIMALS if unit is PERCENT else DECIMALS if unit in (JOULES, SECONDS) else MONEY_DECIMALS
    values = {} if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    rounded = {end: round(value, decimals) for end, value in values.items()}
    return Saving.model_validate({"name": name, "unit": unit.name, "text": text(estimate), **rounded})


def recent_saving(costs: JobSavings, index: int) -> float | None:
    """The saving of one recurrence in percent for its summary in the status; None if it is not known."""
    saving = costs.of(index)
    return None if saving is None else round(saving.value, PERCENT_DECIMALS)


# Of up to 256 configurations.
MAX_ARMS = 64


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
        return {
            "arms": before.arms,
            "best": before.best,
            "next": before.next.model_copy(update={"time": next_start}),
        }
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
    """What the policy decides for the next recurrence, beside no other; the default costs what the savings say."""
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
    # No attempt has reached the target: the policy has an estimate of none of those that ran.
    tried = [space.configurations[arm] for arm in sorted({*ran, *crashes})]
    without_estimates = [Arm(each.batch_size, observations=0, parameters=each.parameters) for each in tried]
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
        for arm in _shown(decision.arms or without_estimates)
    )


def _shown(arms: Sequence[Arm]) -> list[Arm]:
    def rank(arm: Arm) -> tuple[bool, float]:
        return not arm.observations, math.inf if arm.mean_cost_joules is None else arm.mean_cost_joules

    shown = {id(arm) for arm in sorted(arms, key=rank)[:MAX_ARMS]}
    return [arm for arm in arms if id(arm) in shown]
