"""Policy `default`: the default batch size, always; what a job costs that never optimises."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.bandit.arms_left import CRASH_BUDGET, arms_left, nearest_arm
from wattloop_planner.bandit.policy import Decision, DecisionKind, NoArmLeftError, Question


@dataclass(frozen=True)
class FixedPolicy:
    """Always the default batch size, never stopped.

    Attributes:
        crash_budget: Crashes in a row after which the default counts as unable to run.
    """

    crash_budget: int = CRASH_BUDGET

    def decide(self, question: Question) -> Decision:
        """The default batch size.

        Raises:
            NoArmLeftError: It crashed too often in a row.
        """
        size = nearest_arm(question.batch_sizes, question.default_batch_size)
        left = arms_left(question.batch_sizes, question.observations, self.crash_budget)
        if size in left.crashed:
            raise NoArmLeftError(
                f"the default batch size {size} crashed {left.crashed[size]} times in a row and policy default runs no "
                "other; look at the logs of the last attempts, mend the training, or set another default or policy"
            )
        return Decision(size, DecisionKind.DEFAULT, f"policy default always runs the default batch size {size}")
