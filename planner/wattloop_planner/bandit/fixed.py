"""Policy `default`: the default batch size, always; what a job costs that never optimises."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, feasible_arms, nearest_arm
from wattloop_planner.bandit.policy import Decision, DecisionContext, DecisionKind, NoFeasibleArmError


@dataclass(frozen=True)
class FixedPolicy:
    """Always the default batch size, never stopped.

    Attributes:
        crash_budget: Crashes in a row after which the default counts as unable to run.
    """

    crash_budget: int = CRASH_BUDGET

    def decide(self, context: DecisionContext) -> Decision:
        """The default batch size.

        Raises:
            NoFeasibleArmError: It crashed too often in a row.
        """
        size = nearest_arm(context.batch_sizes, context.default_batch_size)
        left = feasible_arms(context.batch_sizes, context.observations, self.crash_budget)
        if size in left.crashed:
            raise NoFeasibleArmError(
                f"the default batch size {size} crashed {left.crashed[size]} times in a row and policy default runs no "
                "other; look at the logs of the last attempts, mend the training, or set another default or policy"
            )
        return Decision(size, DecisionKind.DEFAULT, f"policy default always runs the default batch size {size}")
