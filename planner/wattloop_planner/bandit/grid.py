"""Policy `grid`: tries every batch size once, then runs the cheapest.

The baseline of the Zeus paper (NSDI '23, section 6.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, feasible_arms, nearest_arm
from wattloop_planner.bandit.history import own_observations
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, DecisionKind
from wattloop_planner.observations import Observation, Outcome


@dataclass(frozen=True)
class GridPolicy:
    """Tries the default, then every other size in rising order, then runs the cheapest that reached the target.

    A trial stops at ``beta`` times the lowest cost so far. A size that fails to reach the target is
    excluded.

    Attributes:
        beta: Stopping cost of a trial, as a multiple of the lowest cost so far.
        crash_budget: Consecutive crashes after which an arm is excluded.
    """

    beta: float = 2.0
    crash_budget: int = CRASH_BUDGET

    def decide(self, context: DecisionContext) -> Decision:
        """The next size without a result, or the size of lowest mean cost if all have one.

        Raises:
            NoFeasibleArmError: Every arm crashed too often in a row.
        """
        observations = own_observations(context)
        left = feasible_arms(context.batch_sizes, observations, self.crash_budget).batch_sizes
        default = nearest_arm(left, context.default_batch_size)
        costs, failed = _results(observations, context.eta)
        arms = tuple(_arm(size, costs.get(size, []), size in failed) for size in left)
        if context.attempt == 0:
            for size in (default, *(size for size in left if size != default)):
                if size not in costs and size not in failed and size not in context.running:
                    stop = min((self.beta * min(paid) for paid in costs.values()), default=None)
                    reason = f"batch size {size} has not been tried yet"
                    return Decision(size, DecisionKind.TRIAL, reason, stop, arms)
        known = [size for size in left if size in costs]
        if not known:
            untried = tuple(size for size in left if size not in failed)
            size = nearest_arm(untried or (default,), default)
            reason = "no batch size has reached the target yet"
            return Decision(size, DecisionKind.TRIAL, reason, None, arms, last_attempt=not untried)
        best = min(known, key=lambda size: (fmean(costs[size]), size))
        return Decision(best, DecisionKind.INCUMBENT, f"batch size {best} was the cheapest of those tried", None, arms)


def _results(observations: tuple[Observation, ...], eta: float) -> tuple[dict[int, list[float]], set[int]]:
    """Costs by size of the runs that reached the target, and the sizes that never reached it."""
    costs: dict[int, list[float]] = {}
    failed: set[int] = set()
    for observation in observations:
        if observation.other_target:
            continue
        if observation.outcome is Outcome.REACHED:
            costs.setdefault(observation.batch_size, []).append(observation.cost_joules(eta))
        elif observation.outcome is not Outcome.CRASHED:
            failed.add(observation.batch_size)
    return costs, failed - costs.keys()


def _arm(size: int, costs: list[float], failed: bool) -> Arm:
    note = "did not reach the target" if failed else ""
    return Arm(size, len(costs), failed, fmean(costs) if costs else None, note=note)
