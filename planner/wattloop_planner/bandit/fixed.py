"""Policy `default`: always the default configuration; the baseline of every saving."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, crashes_in_a_row, feasible_arms
from wattloop_planner.bandit.history import own_observations
from wattloop_planner.bandit.policy import Decision, DecisionContext, DecisionKind, NoFeasibleArmError
from wattloop_planner.observations import Outcome

# A default that missed the target this often and never reached it is not retried within a recurrence.
MISSES_BEFORE_LAST_ATTEMPT = 3


@dataclass(frozen=True)
class FixedPolicy:
    """Always runs the default batch size and parameters.

    Attributes:
        crash_budget: Consecutive crashes after which the default is infeasible.
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the mean cost of the runs that
            reached the target. Infinity disables the stop.
    """

    crash_budget: int = CRASH_BUDGET
    max_cost_ratio: float = math.inf

    def decide(self, context: DecisionContext) -> Decision:
        """The default configuration.

        The default may have become more expensive. So a retry after a stopped attempt has no stopping cost.

        Raises:
            NoFeasibleArmError: The default crashed too often in a row.
        """
        space = context.space
        arm = space.default
        default = space.configurations[arm]
        left = feasible_arms(space, crashes_in_a_row(space, context.observations), self.crash_budget)
        if arm in left.crashed:
            raise NoFeasibleArmError(
                f"the default batch size {default} crashed {left.crashed[arm]} times in a row and policy default runs "
                "no other; check the logs of the last attempts, then fix the training or set another default or policy"
            )
        reason = f"policy default always runs the default batch size {default}"
        return Decision(
            default.batch_size,
            DecisionKind.DEFAULT,
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
        stopped_now = any(o.recurrence == context.recurrence and o.outcome is Outcome.STOPPED for o in runs)
        return None if stopped_now or not reached else self.max_cost_ratio * fmean(reached)


def _never_reaches(context: DecisionContext, arm: int) -> bool:
    """Whether an arm missed the target several times and never reached it."""
    outcomes = [
        o.outcome
        for o in context.observations
        if context.arm_of(o) == arm and not (o.from_other_job or o.other_target) and o.outcome is not Outcome.CRASHED
    ]
    return Outcome.REACHED not in outcomes and len(outcomes) >= MISSES_BEFORE_LAST_ATTEMPT


@dataclass(frozen=True)
class DefaultRun:
    """One attempt with the default batch size that was not stopped.

    Attributes:
        reached: Whether it reached the target.
        epochs: Epochs it ran.
        cost_joules: Its cost at the power limits it ran with.
    """

    reached: bool
    epochs: float
    cost_joules: float


def default_cost_joules(
    runs: Iterable[DefaultRun], epoch_cost_at_highest_limit_joules: float | None, start_up_joules: float = 0.0
) -> float | None:
    """Expected cost of one recurrence in the default configuration.

    The default configuration runs the default batch size at the highest power limit, without a
    stopping cost, and retries until the target is reached.

    Args:
        runs: Attempts with the default batch size that reached the target or ran out of epochs.
        epoch_cost_at_highest_limit_joules: Measured cost of one epoch of the default batch size at the
            highest limit. None: the runs' own costs are used.
        start_up_joules: Cost of the start of an attempt, which the cost of its epochs lacks.

    Returns:
        Joules, retries included; None if no run reached the target.

    Example:
        >>> default_cost_joules([DefaultRun(True, 10, 900.0), DefaultRun(False, 20, 1800.0)], 100.0)
        3000.0
    """
    known = list(runs)
    reached = sum(run.reached for run in known)
    if not reached:
        return None
    if epoch_cost_at_highest_limit_joules is not None:
        epochs = sum(run.epochs for run in known)
        return (epoch_cost_at_highest_limit_joules * epochs + start_up_joules * len(known)) / reached
    return sum(run.cost_joules for run in known) / reached
