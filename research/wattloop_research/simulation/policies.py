"""The policies of `wattloop simulate` and `replay` by name: those of jobs, and `grid`."""

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from wattloop_planner.bandit import named_policies
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.feasible_arms import crashes_in_a_row, feasible_arms, nearest_of
from wattloop_planner.bandit.observation_order import own_observations
from wattloop_planner.bandit.policy import Arm, ChoiceKind, Decision, DecisionContext, Policy
from wattloop_planner.observations import Observation, Outcome


@dataclass(frozen=True)
class GridPolicy:
    """Tries the default, then every other configuration in order, then runs the cheapest that reached the target.

    The baseline of the Zeus paper (NSDI '23, section 6.1).
    A trial stops at ``beta`` times the lowest cost so far. A configuration that fails to reach the target is
    excluded.

    Attributes:
        beta: Stopping cost of a trial, as a multiple of the lowest cost so far.
    """

    beta: float = 2.0

    def decide(self, context: DecisionContext) -> Decision:
        """The next configuration without a result, or the one of lowest mean cost if all have one.

        Raises:
            NoFeasibleArmError: Every arm crashed too often in a row.
        """
        from wattloop_planner.bandit.run_costs import RunCosts, attempts_of  # noqa: PLC0415 - needs NumPy

        observations, space = own_observations(context), context.space
        crashes = crashes_in_a_row(space, observations)
        left = feasible_arms(space, crashes, context.arms_excluded)
        costs, failed = _results(context, observations)
        run_costs = RunCosts(attempts_of(context), context.eta)
        arms = tuple(
            _arm(space, arm, len(costs.get(arm, [])), arm in failed).with_cost(run_costs.of(arm, context.gpu_model))
            for arm in left
        )
        default = nearest_of(space, left, space.default)

        def decision(arm: int, kind: ChoiceKind, reason: str, stop: float | None = None) -> Decision:
            chosen = space.configurations[arm]
            return Decision(chosen.batch_size, kind, reason, stop, arms, parameters=chosen.parameters)

        if context.attempt == 0:
            for arm in (default, *(arm for arm in left if arm != default)):
                if arm not in costs and arm not in failed and arm not in context.arms_running:
                    stop = min((self.beta * min(paid) for paid in costs.values()), default=None)
                    reason = f"batch size {space.configurations[arm]} has not been tried yet"
                    return decision(arm, ChoiceKind.TRIAL, reason, stop)
        known = [arm for arm in left if arm in costs]
        if not known:
            untried = tuple(arm for arm in left if arm not in failed)
            arm = nearest_of(space, untried or (default,), default)
            reason = "no batch size has reached the target yet"
            return replace(decision(arm, ChoiceKind.TRIAL, reason), last_attempt=not untried)
        best = min(known, key=lambda arm: (fmean(costs[arm]), arm))
        reason = f"batch size {space.configurations[best]} was the cheapest of those tried"
        return decision(best, ChoiceKind.INCUMBENT, reason)


def _results(
    context: DecisionContext, observations: tuple[Observation, ...]
) -> tuple[dict[int, list[float]], set[int]]:
    """Costs by arm of the runs that reached the target, and the arms that never reached it."""
    costs: dict[int, list[float]] = {}
    failed: set[int] = set()
    for observation in observations:
        arm = context.arm_of(observation)
        if observation.other_target or arm is None:
            continue
        if observation.outcome is Outcome.REACHED:
            costs.setdefault(arm, []).append(observation.cost_joules(context.eta))
        elif observation.outcome is not Outcome.CRASHED:
            failed.add(arm)
    return costs, failed - costs.keys()


def _arm(space: ConfigurationSpace, arm: int, runs: int, failed: bool) -> Arm:
    configuration = space.configurations[arm]
    note = "did not reach the target" if failed else ""
    return Arm(
        configuration.batch_size,
        runs,
        failed,
        note=note,
        parameters=configuration.parameters,
    )


# In the order of the help.
POLICIES = {
    name: named_policies.POLICIES.get(name, GridPolicy) for name in ("thompsonSampling", "zeus", "grid", "default")
}


def policy_named(name: str, **settings: Any) -> Policy:
    """Create the policy with this name; see `wattloop_planner.bandit.named_policies.policy_named`."""
    return named_policies.policy_named(name, POLICIES, **settings)
