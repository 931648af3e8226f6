"""What the next decision of the policy is expected to save, and the text of it for mode Advise.

In mode Advise the policy decides from the same observations as in mode Optimize, but every attempt runs the default
configuration. What was not measured is expected from a prior: the effect of a batch size from the model of the policy,
that of a power limit from measured trainings (`power_prior`). The advice says which, and its interval covers it.
"""

import math
from collections.abc import Sequence

from wattloop.energy.cost import CostModel
from wattloop_operator.api.power_fields import PowerMode
from wattloop_operator.api.recurring_training_job_status import NextRecurrence
from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.quantities import saving_text
from wattloop_operator.domain.records import PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.job_observations import default_configuration
from wattloop_operator.reconcile.learning.power_profiles import highest_measurement, selected_measurement
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


def next_saving(found: NextRecurrence) -> Estimate | None:
    """The expected saving of the next recurrence in percent; None if it is not known yet."""
    return Estimate.if_known(found.saving_percent, found.low_saving_percent, found.high_saving_percent)


def next_configuration(found: NextRecurrence) -> Configuration:
    """Batch size and parameters of the next recurrence, which has a decision."""
    return Configuration(found.batch_size or 0, tuple(found.parameters.items()))


def advice_text(found: NextRecurrence) -> str:
    """The decision of the next recurrence as a phrase for users of mode Advise."""
    limit = "" if found.power_limit_watts is None else f" at {found.power_limit_watts} W"
    unknown = f"; not measured is {found.unknown}" if found.unknown else ""
    saving = next_saving(found)
    expected = f"expected to cost {saving_text(saving)}" if saving else "expected saving not known yet"
    if not saving and not found.unknown:
        expected = "the default, which is expected to cost least"
    return f"batch size {next_configuration(found)}{limit}, {expected} ({found.reason}){unknown}"


def expected_saving(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, arms: Sequence[Arm]
) -> tuple[Estimate | None, list[str]]:
    """The expected saving of a decision in percent, and what of it was not measured."""
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
    if any(
        context.arm_of(each) == context.space.arm(decision.batch_size, decision.parameters)
        and each.outcome is Outcome.REACHED
        and not (each.from_other_job or each.other_target)
        and equal_or_unknown(each.gpu_model, context.gpu_model)
        for each in context.observations
    ):
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
    power = spec.power
    if power.mode is PowerMode.NONE:
        return LogRatio(0.0, 0.0), ""
    known = known_attempts(snapshot)
    own = [each for each in known.records if each.attribution != Attribution.SHARED.value]
    max_power = next((each.max_power_watts for each in reversed(own) if each.max_power_watts > 0), None)
    if max_power is None:
        return None, "the maximum power of the GPUs"
    model = CostModel(spec.objective.energy_weight_percent / 100, max_power)
    of_default, of_chosen = (known.profile(size) for size in (spec.batch_size.default, decision.batch_size))
    if power.mode is PowerMode.AUTO and (of_default or of_chosen):
        effect = 0.0 if of_default is None else _profiled_effect(snapshot, of_default, model)
        if of_chosen is not None:
            return LogRatio(effect, LIMIT_ERROR), ""
        return LogRatio(effect, OTHER_SIZE_SD), f"the effect of a power limit at batch size {decision.batch_size}"
    if power.mode is PowerMode.FIXED:
        return LogRatio(0.0, FIXED_LIMIT_SD), f"the effect of the power limit of {power.watts} W"
    spans = [(each.energy_joules, each.time_seconds) for each in own if each.energy_joules > 0]
    mean_watts = sum(joules for joules, _ in spans) / max(sum(seconds for _, seconds in spans), 1e-9)
    text = "the effect of a power limit, which is expected from measured trainings of other jobs"
    return best_limit_prior(model.eta, mean_watts / max_power), text


def _profiled_effect(snapshot: Snapshot, profile: PowerProfileRecord, model: CostModel) -> float:
    selected, highest = selected_measurement(snapshot.job.spec, profile), highest_measurement(profile)
    cost, default = (model.cost_joules(each.energy_joules, each.time_seconds) for each in (selected, highest))
    return math.log(cost / default) if cost > 0 and default > 0 else 0.0


def has_estimate(arms: Sequence[Arm], configuration: Configuration) -> bool:
    """Whether the cost of a configuration is known among the arms."""
    return any(arm.configuration == configuration and _log_cost(arm) is not None for arm in arms)


def _log_cost(arm: Arm | None) -> LogRatio | None:
    """Gaussian of the log of an arm's expected cost; None if it is not known.

    The mean is above the median by half of the variance, which is large for an arm that never ran.
    """
    if arm is None or arm.mean_log_sd is None or not arm.mean_cost_joules or math.isinf(arm.mean_cost_joules):
        return None
    return LogRatio(math.log(arm.mean_cost_joules) - arm.mean_log_sd**2 / 2, arm.mean_log_sd)
