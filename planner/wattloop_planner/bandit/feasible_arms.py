"""Feasible arms: those that the context does not exclude and that did not crash several times in a row."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.policy import DecisionContext, NoFeasibleArmError
from wattloop_planner.observations import Observation, Outcome

# An arm that crashed this often in a row is infeasible.
CRASH_BUDGET = 3
# Relative tolerance of the epochs of an exhausted attempt.
ROUNDING = 1e-6
# Number of arms that a message lists.
MAX_LISTED = 16


def crashes_in_a_row(space: ConfigurationSpace, observations: Iterable[Observation]) -> dict[int, int]:
    """Number of crashes of each arm since its last run without one; crashes of another job do not count."""
    counts: dict[int, int] = {}
    for observation in observations:
        if not counts and observation.outcome is not Outcome.CRASHED:
            continue
        arm = space.index(observation.batch_size, observation.parameters)
        if observation.from_other_job or arm is None:
            continue
        if observation.outcome is Outcome.CRASHED:
            counts[arm] = counts.get(arm, 0) + 1
        else:
            counts.pop(arm, None)
    return counts


def feasible_arms(
    space: ConfigurationSpace, crashes: Mapping[int, int], excluded: Collection[int] = ()
) -> tuple[int, ...]:
    """The arms that are not excluded and did not crash too often in a row, in rising order.

    Raises:
        NoFeasibleArmError: No arm is left.
    """
    if not crashes and not excluded:
        return tuple(range(len(space)))
    crashed = {arm: count for arm, count in sorted(crashes.items()) if count >= CRASH_BUDGET}
    left = tuple(arm for arm in range(len(space)) if arm not in crashed and arm not in excluded)
    if not left:
        raise NoFeasibleArmError(_no_feasible_arm_text(space, crashed, sorted(set(excluded) - crashed.keys())))
    return left


def tried_arms(context: DecisionContext) -> set[int]:
    """Indices of the arms that had their chance to reach the target within the limit of epochs.

    An arm was tried if it reached the target, ran for the maximum number of epochs or was stopped, or
    missed the target twice. A single attempt that was exhausted earlier, under a lower limit, does not
    count, nor does an attempt that was stopped while no arm had reached the target: it ended at an easier
    target (`wattloop_planner.observations`).
    """
    reached = any(o.outcome is Outcome.REACHED and not o.other_target for o in context.observations)
    tried: set[int] = set()
    missed: set[int] = set()
    for observation in context.observations:
        if observation.from_other_job or observation.other_target or observation.outcome is Outcome.CRASHED:
            continue
        arm = context.arm_of(observation)
        if arm is None:
            continue
        if observation.outcome is Outcome.STOPPED and not reached:
            continue
        early = context.max_epochs is not None and observation.epochs < context.max_epochs * (1 - ROUNDING)
        if observation.outcome is not Outcome.EXHAUSTED or not early or arm in missed:
            tried.add(arm)
        missed.add(arm)
    return tried


def missed_attempts(context: DecisionContext) -> Counter[int]:
    """Number of attempts of each arm that ran for the present target and did not reach it; crashes do not count.

    An attempt that ended because it reached an easier target has not missed this one.
    """
    return Counter(
        arm
        for each in context.observations
        if not (each.from_other_job or each.other_target or each.easier_target)
        and each.outcome not in (Outcome.REACHED, Outcome.CRASHED)
        and (arm := context.arm_of(each)) is not None
    )


def latest_was_stopped(context: DecisionContext, arm: int) -> bool:
    """Whether this job's latest attempt with an arm was stopped; crashes do not count."""
    for observation in reversed(context.observations):
        own = not (observation.from_other_job or observation.outcome is Outcome.CRASHED)
        if own and context.arm_of(observation) == arm:
            return observation.outcome is Outcome.STOPPED
    return False


def nearest_of(space: ConfigurationSpace, arms: Collection[int], wanted: int) -> int:
    """The one of some arms that is nearest to ``wanted``; of equally near ones, the first."""
    return wanted if wanted in arms else min(arms, key=lambda arm: (space.distance(arm, wanted), arm))


def _no_feasible_arm_text(space: ConfigurationSpace, crashed: dict[int, int], excluded: Sequence[int]) -> str:
    """The message for a user when every arm crashed too often or is excluded."""
    listed = [f"{space.configurations[arm]} ({count} times)" for arm, count in list(crashed.items())[:MAX_LISTED]]
    more = f", and {len(crashed) - MAX_LISTED} more" if len(crashed) > MAX_LISTED else ""
    others = ", ".join(str(space.configurations[arm]) for arm in excluded[:MAX_LISTED])
    every = f"every batch size but {others}, which the metric guard excludes," if others else "every batch size"
    return (
        f"{every} crashed: {', '.join(listed)}{more}; check the logs of the last attempts, then fix the "
        "training or offer other batch sizes (smaller ones if memory ran out)"
    )
