"""Mode Advise: what the policy would decide, what it is expected to save, and what it was measured to save since.

The policy decides from the same observations as in mode Optimize, but every attempt runs the default
configuration. What was not measured is expected from a prior: the effect of a batch size from the model of the policy,
that of a power limit from measured trainings (`power_prior`). The advice says which, and its interval covers it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wattloop.energy.cost import CostModel
from wattloop_operator.api.power_fields import PowerLimitMode
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import Advice, AdviceCheck
from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.quantities import NOT_KNOWN_YET, saving_text
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose
from wattloop_operator.reconcile.learning.policy_configurations import default_configuration
from wattloop_operator.reconcile.learning.power_profiles import (
    highest_measurement,
    selected_measurement,
)
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.observation_order import equal_or_unknown
from wattloop_planner.bandit.policy import NINETY_PERCENT, Arm, Decision, DecisionContext
from wattloop_planner.bandit.priors import LogRatio, best_limit_prior
from wattloop_planner.estimate import Estimate
from wattloop_planner.observations import Outcome

# Standard error of the log of the saving by a limit that was measured.
LIMIT_ERROR = 0.02
# Standard deviation of the log of the saving by a limit that was measured at another batch size.
OTHER_SIZE_SD = 0.05
# The same of a limit that the user chose and nobody measured. It may save or cost.
FIXED_LIMIT_SD = 0.1
ONE_RUN = "one run that reaches the target"
NO_OTHER_RAN = "none has run; mode Optimize tries one where the trial is worth its cost"
# A saving has no lower bound; the status has one.
MAX_LOG_RATIO = 5.0


def advice_of(
    snapshot: Snapshot,
    context: DecisionContext,
    decision: Decision,
    power_limit_watts: int | None,
    arms: Sequence[Arm],
) -> Advice:
    """The advice for a decision of the policy that is not carried out.

    Args:
        snapshot: The state of the job.
        context: What the policy decided from.
        decision: Its decision.
        power_limit_watts: The power limit that would be held; None if none would be, or if limits
            would be measured first.
        arms: Estimates of the cost of the configurations.
    """
    saving, unknown = _expected_saving(snapshot, context, decision, arms)
    return Advice.model_validate(
        {
            "batch_size": decision.batch_size,
            "parameters": dict(decision.parameters),
            "power_limit_watts": power_limit_watts,
            "saving_percent": None if saving is None else round(saving.value, 2),
            "low_saving_percent": None if saving is None else round(saving.low, 2),
            "high_saving_percent": None if saving is None else round(saving.high, 2),
            "reason": decision.reason[:1024],
            "unknown": "; ".join(unknown)[:512],
        }
    )


def advised_saving(advice: Advice) -> Estimate | None:
    """The expected saving of an advice in percent; None if it is not known yet."""
    return Estimate.if_known(advice.saving_percent, advice.low_saving_percent, advice.high_saving_percent)


def advised_configuration(advice: Advice) -> Configuration:
    """Batch size and parameters of an advice."""
    return Configuration(advice.batch_size, tuple(advice.parameters.items()))


def advice_text(advice: Advice) -> str:
    """The advice as a phrase for users."""
    limit = "" if advice.power_limit_watts is None else f" at {advice.power_limit_watts} W"
    unknown = f"; not measured is {advice.unknown}" if advice.unknown else ""
    saving = advised_saving(advice)
    expected = f"expected to cost {saving_text(saving)}" if saving else "expected saving not known yet"
    if not saving and not advice.unknown:
        expected = "the default, which is expected to cost least"
    return f"batch size {advised_configuration(advice)}{limit}, {expected} ({advice.reason}){unknown}"


def _expected_saving(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, arms: Sequence[Arm]
) -> tuple[Estimate | None, list[str]]:
    """The expected saving in percent, and what of it was not measured."""
    size, limit = _size_effect(snapshot, context, decision, arms), _limit_effect(snapshot, decision)
    unknown = [text for _, text in (size, limit) if text]
    if size[0] is None or limit[0] is None:
        return None, unknown
    if not size[0].sd and not limit[0].sd:
        # The default configuration itself: it saves nothing, and that is no measurement.
        others = any(arm.observations and arm.configuration != decision.configuration for arm in arms)
        return None, [] if others else [f"what another batch size costs: {NO_OTHER_RAN}"]
    mean, sd = size[0].mean + limit[0].mean, math.hypot(size[0].sd, limit[0].sd)
    low, value, high = (
        100 * (1 - math.exp(min(mean + width * NINETY_PERCENT * sd, MAX_LOG_RATIO))) for width in (1, 0, -1)
    )
    return Estimate(value, low, high), unknown


def _size_effect(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, arms: Sequence[Arm]
) -> tuple[LogRatio | None, str]:
    """Cost of the advised batch size and parameters relative to the default ones, and what of it was not measured."""
    chosen, default_size = decision.configuration, default_configuration(snapshot.job.spec)
    default = default_cost(snapshot)
    if default is None:
        return None, f"the cost of the default batch size {default_size}: {ONE_RUN} of it makes it known"
    if chosen == default_size:
        return LogRatio(0.0, 0.0), ""
    found = {arm.configuration: arm for arm in arms}
    arm, base = (_log_cost(found.get(each)) for each in (chosen, default_size))
    if arm is None or base is None:
        return None, f"the cost of batch size {chosen}: {ONE_RUN} of it makes it known"
    ratio = arm.mean - base.mean
    if _has_reached(context, context.space.arm(decision.batch_size, decision.parameters)):
        return LogRatio(ratio, math.hypot(arm.sd, base.sd)), ""
    # The error of an arm that never ran contains that of the level of those that did.
    text = f"batch size {chosen}, whose cost is expected from the model: none of its runs reached the target"
    return LogRatio(ratio, max(arm.sd, LIMIT_ERROR)), text


def _limit_effect(snapshot: Snapshot, decision: Decision) -> tuple[LogRatio | None, str]:
    """Cost at the power limit that would be held relative to the cost without one, and what was not measured.

    The estimates of batch sizes with a power profile are at its best limit (`at_policy_limits`). So the effect at the
    default batch size is what their ratio lacks.
    """
    spec = snapshot.job.spec
    limit = spec.power.limit
    if limit.mode is PowerLimitMode.NONE:
        return LogRatio(0.0, 0.0), ""
    known = known_attempts(snapshot)
    own = [each for each in known.records if each.attribution != Attribution.SHARED.value]
    max_power = next((each.max_power_watts for each in reversed(own) if each.max_power_watts > 0), None)
    if max_power is None:
        return None, "the maximum power of the GPUs"
    model = CostModel(spec.objective.energy_weight_percent / 100, max_power)
    of_default, of_chosen = (known.profile(size) for size in (spec.batch_size.default, decision.batch_size))
    if limit.mode is PowerLimitMode.AUTO and (of_default or of_chosen):
        effect = 0.0 if of_default is None else _profiled_effect(snapshot, of_default, model)
        if of_chosen is not None:
            return LogRatio(effect, LIMIT_ERROR), ""
        return LogRatio(effect, OTHER_SIZE_SD), f"the effect of a power limit at batch size {decision.batch_size}"
    if limit.mode is PowerLimitMode.FIXED:
        return LogRatio(0.0, FIXED_LIMIT_SD), f"the effect of the power limit of {limit.watts} W"
    spans = [(each.energy_joules, each.time_seconds) for each in own if each.energy_joules > 0]
    power = sum(joules for joules, _ in spans) / max(sum(seconds for _, seconds in spans), 1e-9)
    text = "the effect of a power limit, which is expected from measured trainings of other jobs"
    return best_limit_prior(model.eta, power / max_power), text


def _profiled_effect(snapshot: Snapshot, profile: PowerProfileRecord, model: CostModel) -> float:
    selected, highest = selected_measurement(snapshot.job.spec, profile), highest_measurement(profile)
    cost, default = (model.cost_joules(each.energy_joules, each.time_seconds) for each in (selected, highest))
    return math.log(cost / default) if cost > 0 and default > 0 else 0.0


def _log_cost(arm: Arm | None) -> LogRatio | None:
    """Gaussian of the log of an arm's expected cost; None if it is not known.

    The mean is above the median by half of the variance, which is large for an arm that never ran.
    """
    if arm is None or arm.mean_log_sd is None or not arm.mean_cost_joules or math.isinf(arm.mean_cost_joules):
        return None
    return LogRatio(math.log(arm.mean_cost_joules) - arm.mean_log_sd**2 / 2, arm.mean_log_sd)


def _has_reached(context: DecisionContext, arm: int) -> bool:
    return any(
        context.arm_of(each) == arm
        and each.outcome is Outcome.REACHED
        and not (each.from_other_job or each.other_target)
        and equal_or_unknown(each.gpu_model, context.gpu_model)
        for each in context.observations
    )


def advice_check(
    job: RecurringTrainingJob, records: Sequence[ObservationRecord], savings: JobSavings, next_index: int
) -> AdviceCheck | None:
    """The advice at the end of mode Advise, with the saving that its configuration had since; None without one.

    Args:
        job: The job, with the status before.
        records: Its records.
        savings: Its recurrences, compared with the default configuration.
        next_index: Index of its next recurrence.
    """
    check = job.status.advice_check
    if job.spec.mode is not Mode.ADVISE and job.status.advice is not None:
        advice, expected = job.status.advice, advised_saving(job.status.advice)
        check = (
            None
            if expected is None
            else AdviceCheck(
                batch_size=advice.batch_size,
                parameters=advice.parameters,
                since_recurrence=next_index,
                expected_saving_percent=advice.saving_percent,
                low_expected_saving_percent=advice.low_saving_percent,
                high_expected_saving_percent=advice.high_saving_percent,
            )
        )
    if check is None:
        return None
    indices = _indices(records, savings, check)
    measured = savings.of_all(indices)
    fields = ("low_measured_saving_percent", "measured_saving_percent", "high_measured_saving_percent")
    values = (None,) * 3 if measured is None else tuple(round(each, 2) for each in _ends(measured))
    return AdviceCheck.model_validate(
        check.model_dump() | dict(zip(fields, values, strict=True)) | {"recurrences": len(indices)}
    )


def advice_check_text(check: AdviceCheck) -> str:
    """What was expected, and what was measured, as a sentence for users."""
    ends = (check.expected_saving_percent, check.low_expected_saving_percent, check.high_expected_saving_percent)
    expected = Estimate(*(float(each or 0) for each in ends))
    chosen = Configuration(check.batch_size, tuple(check.parameters.items()))
    saving = Estimate.if_known(
        check.measured_saving_percent, check.low_measured_saving_percent, check.high_measured_saving_percent
    )
    measured = NOT_KNOWN_YET if saving is None else f"{saving_text(saving)} over {check.recurrences} recurrence(s)"
    return f"Mode Advise expected batch size {chosen} to cost {saving_text(expected)}; measured: {measured}."


def _indices(records: Sequence[ObservationRecord], savings: JobSavings, check: AdviceCheck) -> tuple[int, ...]:
    """The recurrences with the advised configuration: those that held it, or else the trial of it."""
    configuration = check.batch_size, tuple(sorted(check.parameters.items()))
    ran = {each.recurrence for each in records if (each.batch_size, each.parameters) == configuration}
    found = [
        each
        for each in savings.recurrences
        if each.has_saving and each.index >= check.since_recurrence and each.index in ran
    ]
    chosen = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    return tuple(chosen or [each.index for each in found])


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high
