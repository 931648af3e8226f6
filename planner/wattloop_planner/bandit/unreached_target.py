"""What is known of a target that no attempt of a job has reached: plateaus, and the arm that comes closest.

Everything here is for a job whose target no attempt has reached. Once one has, the model of the epochs
decides, and a curve ends no attempt but a trial.
"""

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from statistics import fmean, stdev

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.observation_order import equal_or_unknown
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.final_metric import FinalMetric, Levels, other_size_reaches, predict_final_metric
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, retargeted

# A whole run is a reference for this many recurrences. Then an attempt runs all its epochs again, because the data
# may have changed since.
REFERENCE_RECURRENCES = 20
# Relative tolerance of the epochs of a whole run.
ROUNDING = 1e-6
# Least standard deviation of the final metric between runs, as a part of the range of the metric.
MIN_SPREAD_SHARE = 0.005
# Distance from the best final metric within which arms come equally close, in standard errors.
CLOSE_ERRORS = 2.0
# Arms whose whole runs tell that another one reaches the target with a lower probability are not tried as retries.
MIN_RETRY_PROBABILITY = 0.05


@dataclass(frozen=True)
class ClosestArm:
    """The cheapest arm of those whose final metric comes closest to the target.

    Attributes:
        metric: Its final metric, the mean over its runs.
        threshold: A threshold that each of its attempts reached: the worst final metric of the attempts of the arms
            that come closest, rounded to the side that is easier to reach.
    """

    arm: int
    metric: float
    threshold: float


def predicted_final_metric(
    context: DecisionContext, curve: MetricCurve, epochs: float, *, template_digest: str = "", image_digest: str = ""
) -> FinalMetric | None:
    """Predict the final metric of a running attempt; None without a reference, or if an attempt has reached.

    Args:
        context: The context of its decision, with what has become known since.
        curve: Its evaluations so far.
        epochs: Epochs run so far.
        template_digest: Digest of its template; empty if unknown. References have no other one.
        image_digest: The same for its image.
    """
    if context.target is None or context.max_epochs is None:
        return None
    references = [
        each.curve
        for each in whole_runs(context)
        if each.curve is not None
        and equal_or_unknown(each.template_digest, template_digest)
        and equal_or_unknown(each.image_digest, image_digest)
    ]
    return predict_final_metric(curve, epochs, context.target, context.max_epochs, references)


def whole_runs(context: DecisionContext) -> list[Observation]:
    """The recent attempts of this job that ran all their epochs and missed the target.

    Empty if an attempt has reached the target: it can be reached.
    """
    limit = context.max_epochs
    if limit is None or _has_reached(context):
        return []
    return [
        each
        for each in _own(context)
        if each.outcome is Outcome.EXHAUSTED
        and abs(each.epochs - limit) <= ROUNDING * limit
        and each.recurrence >= context.recurrence - REFERENCE_RECURRENCES
    ]


def retries_are_futile(context: DecisionContext) -> bool:
    """Whether whole runs tell that no other batch size is likely to reach the target."""
    curves = [each.curve for each in whole_runs(context) if each.curve is not None]
    if context.target is None or not curves:
        return False
    probability = other_size_reaches(context.target, curves)
    return probability is not None and probability < MIN_RETRY_PROBABILITY


def closest_arm(context: DecisionContext, arms: Collection[int]) -> ClosestArm | None:
    """The cheapest of these arms whose final metric is within the noise of the best one.

    The noise is the spread of the final metrics between runs of an arm. How evaluations of one run differ does not show
    it: a metric that still rises differs, too. The cost is compared at the same level, which each attempt of these arms
    reached.

    Returns:
        None if the curve of no attempt is known, or if an attempt has reached the target.
    """
    target = context.target
    if target is None or _has_reached(context):
        return None
    sign = 1.0 if target.maximize else -1.0
    runs = _runs_by_arm(context, arms)
    if not runs:
        return None
    levels = {
        arm: [Levels(each.curve, sign) for each in of_arm if each.curve is not None] for arm, of_arm in runs.items()
    }
    finals = {arm: [each.final for each in of_arm] for arm, of_arm in levels.items()}
    means = {arm: fmean(found) for arm, found in finals.items()}
    best = max(means, key=lambda arm: means[arm])
    every = [each for of_arm in levels.values() for each in of_arm]
    span = max(each.final for each in every) - min(each.values[0] for each in every)
    # Between the runs of an arm, of the arm for which it is greatest; 0 if none ran twice.
    spread = max((stdev(of_arm) for of_arm in finals.values() if len(of_arm) > 1), default=0.0)
    spread = max(spread, MIN_SPREAD_SHARE * span)
    close = [arm for arm in runs if means[arm] >= means[best] - CLOSE_ERRORS * spread]
    threshold = _rounded(min(each for arm in close for each in finals[arm]), span, sign)
    easier = replace(target, threshold=threshold, consecutive_evaluations=1)
    costs = {arm: cost for arm in close if (cost := _cost_until(runs[arm], easier, context.eta)) is not None}
    if not costs:
        return None
    chosen = min(costs, key=lambda arm: (costs[arm], arm))
    return ClosestArm(chosen, sign * means[chosen], threshold)


def _own(context: DecisionContext) -> list[Observation]:
    return [each for each in context.observations if not each.from_other_job and not each.other_target]


def _has_reached(context: DecisionContext) -> bool:
    return any(each.outcome is Outcome.REACHED for each in _own(context))


def _runs_by_arm(context: DecisionContext, arms: Collection[int]) -> dict[int, list[Observation]]:
    """The attempts of each arm that ended by themselves or at their plateau; else those that were stopped."""
    ended: defaultdict[int, list[Observation]] = defaultdict(list)
    stopped: defaultdict[int, list[Observation]] = defaultdict(list)
    for each in _own(context):
        arm = context.arm_of(each)
        # A simulated path without a target in its traces has a curve without evaluations.
        if arm is None or arm not in arms or each.curve is None or not each.curve.epochs:
            continue
        if each.outcome in (Outcome.EXHAUSTED, Outcome.PLATEAUED):
            ended[arm].append(each)
        elif each.outcome is Outcome.STOPPED:
            stopped[arm].append(each)
    return {**stopped, **ended}


def _cost_until(runs: list[Observation], target: RunTarget, eta: float) -> float | None:
    """Expected cost of reaching an easier target with an arm, failed attempts included; None if none did."""
    converted = [found for each in runs if (found := retargeted(each, target)) is not None]
    reached = sum(each.outcome is Outcome.REACHED for each in converted)
    return math.fsum(each.cost_joules(eta) for each in converted) / reached if reached else None


def _rounded(level: float, span: float, sign: float) -> float:
    """A level as a threshold of few digits that is at most as hard to reach."""
    if span <= 0:
        return sign * level
    last_place = Decimal(1).scaleb(math.floor(math.log10(span)) - 2)
    # As a decimal number: 0.57 * 100 is less than 57.
    return sign * float(Decimal(repr(level)).quantize(last_place, ROUND_FLOOR))
