"""The decision of a policy with a cost model while no arm is known to reach the target."""

import math
from statistics import NormalDist

import numpy as np

from wattloop_planner.bandit.cost_posterior import log_limit_factor, log_limit_of
from wattloop_planner.bandit.feasible_arms import missed_attempts, nearest_of, tried_arms
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.unreached_target import closest_arm, retries_are_futile

# An untried arm whose attempts reach the target within the limit of epochs with a lower probability is not tried. The
# bound is low, because the level of the epochs is unknown and the probabilities of all arms are low.
MIN_FIRST_REACH_PROBABILITY = 0.01
MIN_FIRST_LIMIT_DISTANCE = NormalDist().inv_cdf(MIN_FIRST_REACH_PROBABILITY)


def first_decision(context: DecisionContext, posterior: Posterior, feasible: tuple[int, ...]) -> Decision:
    """The decision while no arm is known to reach the target.

    The default runs first, then each arm that may reach the target once: in the same recurrence, or one
    in each recurrence if whole runs tell that another size hardly does. Arms whose only attempt ended before the
    limit of epochs then run once more. After that, each recurrence is one attempt with the cheapest arm of those that
    come closest.

    Args:
        context: The context of the decision.
        posterior: The posterior of its observations.
        feasible: The arms that are not excluded and did not crash too often.
    """
    space = context.space
    left = tuple(arm for arm in feasible if not posterior.diverged[arm]) or feasible
    default = nearest_of(space, left, space.default)
    distances = _limit_distances(context, posterior)
    tried = tried_arms(context)
    untried = [arm for arm in left if arm not in tried and distances[arm] >= MIN_FIRST_LIMIT_DISTANCE]
    # Each arm runs once before one runs again, as after an attempt that ended by itself before the limit.
    missed = missed_attempts(context)
    due = [arm for arm in untried if arm not in missed] or untried
    limited = context.max_epochs is not None
    arm = default
    if default not in due:
        # If nothing is known of the epochs, all distances are infinite, and the nearest arm is the likeliest.
        arm = min(due or left, key=lambda each: (-distances[each], space.distance(each, default), each))
    from_easier = due and any(o.easier_target for o in context.observations)
    costs = _log_expected_costs(context, posterior)
    by_cost = costs is not None and due and (from_easier or default not in due)
    if costs is not None and by_cost:
        arm = min(due, key=lambda each: (costs[each], space.distance(each, default), each))
    closest = None if untried else closest_arm(context, left)
    if closest is not None:
        arm = closest.arm
    # A failed attempt of an only arm may be an accident until it was repeated.
    last = limited and all(each == arm for each in untried) and (len(left) > 1 or arm in tried)
    last |= retries_are_futile(context)
    chosen = space.configurations[arm]
    criterion = "expected to reach the target at the lowest cost" if by_cost else "the likeliest to reach the target"
    reason = f"batch size {chosen}: {criterion}; none has yet"
    if from_easier:
        reason = f"batch size {chosen}: the cheapest as far as runs at an easier target show; none has reached it yet"
    if not untried and limited:
        reason = f"batch size {chosen}: the likeliest to reach the target, although none is expected to; no retries"
    if closest is not None and context.target is not None:
        reason = (
            f"no batch size is expected to reach {context.target.metric} {context.target.threshold:g}; {chosen} is "
            f"the cheapest of those that come closest ({closest.metric:.4g}); no retries"
        )
    if all(o.other_target for o in context.observations):
        reason = f"nothing is known yet: the default batch size {chosen}"
    return Decision(chosen.batch_size, ChoiceKind.DEFAULT, reason, last_attempt=last, parameters=chosen.parameters)


def _log_expected_costs(context: DecisionContext, posterior: Posterior) -> list[float] | None:
    """Log of the expected cost of each arm, retries after a limit of epochs included; None if nothing is known."""
    epoch_cost = posterior.epoch_costs.posterior(context.gpu_model)
    if epoch_cost is None or not posterior.has_epochs:
        return None
    mean, covariance, noise = posterior.epochs()
    variance = covariance.diagonal() + noise**2
    factor = log_limit_factor(mean, np.sqrt(variance), log_limit_of(context.max_epochs))
    log_expected = mean + epoch_cost.mean + (variance + epoch_cost.covariance.diagonal()) / 2 + factor
    # Costs that differ by rounding are equal, so that ties are resolved by the distance.
    costs: list[float] = log_expected.round(9).tolist()
    return costs


def _limit_distances(context: DecisionContext, posterior: Posterior) -> list[float]:
    """The limit of epochs in standard deviations above the log epochs of an attempt of each arm."""
    if context.max_epochs is None or not posterior.has_epochs:
        return [math.inf] * len(context.space)
    mean, covariance, noise = posterior.epochs()
    spread = np.sqrt(covariance.diagonal() + noise**2)
    # Distances that differ by rounding are equal, so that ties are resolved by the distance.
    distances: list[float] = ((log_limit_of(context.max_epochs) - mean) / spread).round(9).tolist()
    return distances
