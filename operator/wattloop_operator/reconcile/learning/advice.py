"""Mode Advise: what the policy would decide, and what it is expected to cost.

The policy decides from the same observations as in mode Optimize, but every attempt runs the default
configuration. So it learns nothing new about other batch sizes and power limits, and a saving is
stated only where it was measured, in mode Optimize before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wattloop.cost import CostModel
from wattloop_operator.api.power import PowerLimitMode
from wattloop_operator.api.recurring_training_job_status import Advice
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.usage import relative_percent
from wattloop_operator.reconcile.learning import observations
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.parameters import default_configuration
from wattloop_operator.reconcile.learning.power_limit import highest_measurement, selected_measurement
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.history import comparable_models
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext
from wattloop_planner.observations import Outcome

MAX_LOG_WIDTH = 100.0


@dataclass(frozen=True)
class _Saving:
    """The expected cost in percent of the default configuration's, with its 90 % interval, and what is unknown."""

    percent: float | None = None
    low: float | None = None
    high: float | None = None
    unknown: tuple[str, ...] = ()


def advice_of(
    snapshot: Snapshot, context: DecisionContext, decision: Decision, power_limit_watts: int | None
) -> Advice:
    """The advice for a decision of the policy that is not carried out.

    Args:
        snapshot: The state of the job.
        context: What the policy decided from.
        decision: Its decision.
        power_limit_watts: The power limit that would be held; None if none would be, or if limits
            would be measured first.
    """
    size, spec = decision.batch_size, snapshot.job.spec
    known = spec.power.limit.mode is not PowerLimitMode.AUTO or power_limit_watts is not None
    saving = _of_default_configuration(snapshot) if decision.configuration == default_configuration(spec) else None
    saving = saving or _of_other_configuration(snapshot, context, decision)
    if not known and saving.percent is not None:
        text = f"the effect of a power limit: none was measured at batch size {size}, and mode Advise measures none"
        saving = replace(saving, unknown=(*saving.unknown, text))
    return Advice.model_validate(
        {
            "batch_size": size,
            "parameters": dict(decision.parameters),
            "power_limit_watts": power_limit_watts,
            "cost_percent": saving.percent,
            "low_cost_percent": saving.low,
            "high_cost_percent": saving.high,
            "reason": decision.reason[:1024],
            "unknown": "; ".join(saving.unknown)[:512],
        }
    )


def advice_text(advice: Advice) -> str:
    """The advice as a phrase for users."""
    limit = "" if advice.power_limit_watts is None else f" at {advice.power_limit_watts} W"
    cost = "at an unknown cost"
    if advice.cost_percent is not None:
        cost = f"at {advice.cost_percent:.3g} % of the default configuration's cost"
        if advice.low_cost_percent is not None and advice.high_cost_percent is not None:
            cost += f" ({advice.low_cost_percent:.3g} to {advice.high_cost_percent:.3g})"
    unknown = f"; not known is {advice.unknown}" if advice.unknown else ""
    chosen = Configuration(advice.batch_size, tuple(advice.parameters.items()))
    return f"batch size {chosen}{limit}, {cost} ({advice.reason}){unknown}"


def _of_default_configuration(snapshot: Snapshot) -> _Saving:
    """Only the power limit distinguishes the advice from the default configuration."""
    spec = snapshot.job.spec
    size, limit = spec.batch_size.default, spec.power.limit
    if limit.mode is PowerLimitMode.NONE:
        return _Saving(100.0)
    records = observations.known_records(snapshot)
    profile = applicable_profile(records, observations.known_profiles(snapshot), size)
    if limit.mode is PowerLimitMode.FIXED or profile is None:
        text = f"the saving by a power limit: none was measured at batch size {size}, and mode Advise measures none"
        return _Saving(unknown=(text,))
    watts = next((each.max_power_watts for each in reversed(records) if each.max_power_watts > 0), None)
    if watts is None:
        return _Saving(unknown=("the maximum power of the GPUs",))
    selected, highest = selected_measurement(spec, profile), highest_measurement(profile)
    model = CostModel(spec.objective.energy_weight_percent / 100, watts)
    cost, default = (model.cost_joules(each.energy_joules, each.time_seconds) for each in (selected, highest))
    return _Saving(relative_percent(cost, default))


def _of_other_configuration(snapshot: Snapshot, context: DecisionContext, decision: Decision) -> _Saving:
    """The policy's estimate, if the configuration reached the target on these GPUs."""
    size = decision.configuration
    default_size = default_configuration(snapshot.job.spec)
    default = default_cost(snapshot)
    if default is None:
        return _Saving(unknown=(f"the cost of the default batch size {default_size}: it has not reached the target",))
    if not _has_reached(context, context.space.arm(decision.batch_size, decision.parameters)):
        text = f"the cost of batch size {size}: none of its runs reached the target on these GPUs, and mode Advise "
        return _Saving(unknown=(text + "runs the default batch size only",))
    arms = {arm.configuration: arm for arm in decision.arms}
    arm = arms.get(size)
    if arm is None or arm.mean_cost_joules is None:
        return _Saving(unknown=(f"the cost of batch size {size}: policy {_policy(snapshot)} gives no estimate of it",))
    percent = relative_percent(arm.mean_cost_joules, default)
    if percent is None:
        return _Saving(unknown=(f"the cost of batch size {size}: its estimate is not plausible",))
    low, high = _relative_interval(percent, arm, arms.get(default_size))
    return _Saving(percent, low, high)


def _relative_interval(percent: float, arm: Arm, default: Arm | None) -> tuple[float | None, float | None]:
    """The 90 % interval of a relative cost.

    The widths of both intervals are added in squares on the logarithmic scale. Their errors are
    positively correlated, so this is at least as wide as the exact interval.
    """
    widths, default_widths = _log_widths(arm), None if default is None else _log_widths(default)
    if widths is None or default_widths is None:
        return None, None
    low = percent * math.exp(-math.hypot(widths[0], default_widths[1]))
    high = percent * math.exp(min(math.hypot(widths[1], default_widths[0]), MAX_LOG_WIDTH))
    return round(low, 2), relative_percent(high, 100.0)


def _log_widths(arm: Arm) -> tuple[float, float] | None:
    """Distances of the mean cost from both ends of its interval, as logarithms; None if one is not positive."""
    values = [arm.low_cost_joules, arm.mean_cost_joules, arm.high_cost_joules]
    known = [math.log(each) for each in values if each is not None and 0 < each < math.inf]
    if len(known) < len(values):
        return None
    low, mean, high = known
    return max(mean - low, 0.0), max(high - mean, 0.0)


def _has_reached(context: DecisionContext, arm: int) -> bool:
    return any(
        context.arm_of(each) == arm
        and each.outcome is Outcome.REACHED
        and not (each.from_other_job or each.other_target)
        and comparable_models(each.gpu_model, context.gpu_model)
        for each in context.observations
    )


def _policy(snapshot: Snapshot) -> str:
    return snapshot.job.spec.policy.name.value
