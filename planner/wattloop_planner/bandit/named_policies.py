"""The policies by the names used in manifests and commands, and that of the name `default`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from wattloop.errors import UsageError
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, crashes_in_a_row, feasible_arms, latest_was_stopped
from wattloop_planner.bandit.observation_order import own_observations
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, NoFeasibleArmError, Policy
from wattloop_planner.observations import Outcome

# A default that missed the target this often and never reached it is not retried within a recurrence.
MISSES_BEFORE_LAST_ATTEMPT = 3


@dataclass(frozen=True)
class FixedPolicy:
    """Always runs the default batch size and parameters.

    Attributes:
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the mean cost of the runs that
            reached the target, or of the latest one's if that is higher. Infinity disables the stop.
    """

    max_cost_ratio: float = math.inf

    def decide(self, context: DecisionContext) -> Decision:
        """The default configuration.

        The default may have become more expensive. So an attempt after a stopped one has no stopping cost.

        Raises:
            NoFeasibleArmError: The default crashed too often in a row.
        """
        space = context.space
        arm = space.default
        default = space.configurations[arm]
        crashes = crashes_in_a_row(space, context.observations)
        feasible_arms(space, crashes)
        if crashes.get(arm, 0) >= CRASH_BUDGET:
            raise NoFeasibleArmError(
                f"the default batch size {default} crashed {crashes[arm]} times in a row, and no other one may "
                "run; check the logs of the last attempts, then fix the training, or set another default"
            )
        reason = f"always the default batch size {default}"
        return Decision(
            default.batch_size,
            ChoiceKind.DEFAULT,
            reason,
            self._stop_cost_joules(context, arm),
            last_attempt=_never_reaches(context, arm),
            parameters=default.parameters,
        )

    def _stop_cost_joules(self, context: DecisionContext, arm: int) -> float | None:
        if math.isinf(self.max_cost_ratio):
            return None
        runs = [o for o in own_observations(context) if context.arm_of(o) == arm and not o.other_target]
        reached = [o.cost_joules(context.eta) for o in runs if o.outcome is Outcome.REACHED]
        if latest_was_stopped(context, arm) or not reached:
            return None
        return self.max_cost_ratio * max(fmean(reached), reached[-1])


def _never_reaches(context: DecisionContext, arm: int) -> bool:
    """Whether an arm missed the target several times and never reached it."""
    misses = 0
    for o in context.observations:
        if o.from_other_job or o.other_target or o.outcome is Outcome.CRASHED or context.arm_of(o) != arm:
            continue
        if o.outcome is Outcome.REACHED:
            return False
        misses += 1
    return misses >= MISSES_BEFORE_LAST_ATTEMPT


def _thompson_sampling(**settings: Any) -> Policy:
    from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy  # noqa: PLC0415 - needs NumPy

    return ThompsonSamplingPolicy(**settings)


def _zeus(**settings: Any) -> Policy:
    from wattloop_planner.bandit.zeus_policy import ZeusPolicy  # noqa: PLC0415 - needs NumPy

    return ZeusPolicy(**settings)


# Imports are deferred: commands that list the names, and an operator without jobs, need no NumPy.
POLICIES: dict[str, Callable[..., Policy]] = {
    "thompsonSampling": _thompson_sampling,
    "zeus": _zeus,
    "default": FixedPolicy,
}


def policy_named(name: str, policies: Mapping[str, Callable[..., Policy]] = POLICIES, /, **settings: Any) -> Policy:
    """Create the policy with this name.

    Args:
        name: ``thompsonSampling``, ``zeus`` or ``default``.
        policies: The policies by name; a laboratory may have more.
        **settings: Settings of the policy's class.

    Raises:
        UsageError: The policy or a setting does not exist.

    Example:
        >>> policy_named("zeus", window=5)
        ZeusPolicy(window=5, beta=2.0, overlap=<Overlap.POSTERIOR: 'posterior'>)
    """
    if name not in policies:
        raise UsageError(f"unknown policy {name!r}; the policies are: {', '.join(policies)}")
    try:
        return policies[name](**settings)
    except TypeError as error:
        raise UsageError(f"invalid settings {settings} of policy {name}: {error}") from error
