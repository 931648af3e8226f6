"""Policy `zeus`: the published algorithm (Zeus, NSDI '23, section 4), for comparison; not recommended.

Pruning (`zeus_pruning`), then Gaussian Thompson sampling over the survivors, with an early stop at β
times the lowest cost so far.

Properties of the algorithm that are kept, although they are defects: in the sampling stage the cost of a
run that missed the target counts as a reward; identical runs give an arm infinite precision; the window
is per arm; the lowest cost never expires; another GPU model starts without knowledge.

Differences from the published implementation: a lost exploration is requested again; an arm that crashes
repeatedly is pruned; late results are used; every arm draws its own random number; if all sizes are
pruned, the error message gives a remedy; a run that was stopped early does not lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, crashes_in_a_row
from wattloop_planner.bandit.observation_order import own_observations
from wattloop_planner.bandit.policy import (
    Arm,
    ChoiceKind,
    Decision,
    DecisionContext,
    NoFeasibleArmError,
)
from wattloop_planner.bandit.run_costs import RunCosts, attempts_of
from wattloop_planner.bandit.zeus_pruning import Pruning, RunResult, pruning_after
from wattloop_planner.observations import Observation, Outcome, ParameterValues

MIN_OBSERVATIONS = 2


@dataclass(frozen=True)
class GaussianArm:
    """Posterior of an arm's mean reward (−cost), a Gaussian.

    Attributes:
        batch_size: The arm.
        observations: Rewards in the window.
        mean: Posterior mean of the reward, joules.
        precision: Posterior precision, 1/joules²; infinite if all rewards are equal.
    """

    batch_size: int
    observations: int
    mean: float
    precision: float


@dataclass(frozen=True)
class ZeusState:
    """The state of the published algorithm.

    Attributes:
        next_batch_size: The size that the pruning stage requests; None in the sampling stage.
        arms: The arms of the sampling stage in rising order; empty in the pruning stage.
        min_cost_joules: The lowest cost of a run that reached the target; None without such a run.
        cheapest: The size of that run.
    """

    next_batch_size: int | None
    arms: tuple[GaussianArm, ...]
    min_cost_joules: float | None
    cheapest: int | None


class Overlap(StrEnum):
    """What runs while other attempts of the job are in flight, as published.

    BEST_KNOWN: the cheapest size so far that reached the target, else the default; nothing else is tried (the published
        simulation of a cluster).
    POSTERIOR: the same while the pruning stage waits for the size that it requested; later a Thompson sample, which
        differs from decision to decision (the published server).
    """

    BEST_KNOWN = "best-known"
    POSTERIOR = "posterior"


@dataclass(frozen=True)
class ZeusPolicy:
    """The published algorithm as a pure function of the observations.

    Attributes:
        window: Number of most recent rewards of each arm that are used; 0: all.
        beta: Stopping cost as a multiple of the lowest cost so far; infinity disables stopping.
        crash_budget: Consecutive crashes that count as one run that missed the target and exclude the
            arm.
        overlap: What runs while other attempts are in flight.
    """

    window: int = 0
    beta: float = 2.0
    crash_budget: int = CRASH_BUDGET
    overlap: Overlap = Overlap.POSTERIOR

    def decide(self, context: DecisionContext) -> Decision:
        """The size that the pruning stage requests, or a Thompson sample.

        Raises:
            NoFeasibleArmError: Every size was pruned.
            ValueError: A parameter has several candidates.
        """
        return replace(self._decision(context), parameters=_parameters(context))

    def _decision(self, context: DecisionContext) -> Decision:
        state = self.state(context)
        stop = None if state.min_cost_joules is None else self.beta * state.min_cost_joules
        stop = None if stop is not None and math.isinf(stop) else stop
        if self.overlap is Overlap.BEST_KNOWN and context.running:
            return _best_known(context.space.default_batch_size, state.cheapest, stop)
        if state.next_batch_size is not None:
            if state.next_batch_size in (each.batch_size for each in context.running):
                return _meanwhile(state.next_batch_size, state.cheapest)
            size = state.next_batch_size
            reason = f"pruning: does batch size {size} reach the target within {self.beta:g}× the least cost?"
            return Decision(state.next_batch_size, ChoiceKind.PRUNE, reason, stop)
        size = _sampled(state.arms, np.random.default_rng(context.seed))
        reason = f"batch size {size} has the best of one Thompson sample an arm"
        costs = RunCosts(attempts_of(context), context.eta)
        arms = tuple(
            Arm(each.batch_size, each.observations).with_cost(costs.of(index, context.gpu_model))
            for each in state.arms
            if (index := context.space.index(each.batch_size, _parameters(context))) is not None
        )
        return Decision(size, ChoiceKind.SAMPLE, reason, stop, arms)

    def state(self, context: DecisionContext) -> ZeusState:
        """The state of the algorithm before this decision.

        Raises:
            NoFeasibleArmError: Every size was pruned.
            ValueError: A parameter has several candidates.
        """
        _parameters(context)
        # An excluded size counts as if it had never been offered.
        offered = tuple(size for arm, size in enumerate(context.batch_sizes) if arm not in context.arms_excluded)
        observations = [
            o for o in own_observations(context) if _has_default_parameters(context, o) and o.batch_size in offered
        ]
        results = _results(observations, context.eta, self.crash_budget)
        pruning = pruning_after(offered, context.space.default_batch_size, results)
        reached = [(r.cost_joules, r.batch_size) for r in results if r.reached]
        min_cost, cheapest = min(reached) if reached else (None, None)
        if pruning.next_batch_size is not None:
            return ZeusState(pruning.next_batch_size, (), min_cost, cheapest)
        return ZeusState(None, self._arms(pruning, observations, context), min_cost, cheapest)

    def _arms(
        self, pruning: Pruning, observations: Sequence[Observation], context: DecisionContext
    ) -> tuple[GaussianArm, ...]:
        crashes = crashes_in_a_row(context.space, observations)
        left = [
            size
            for arm, size in enumerate(context.batch_sizes)
            if size in pruning.survivors and crashes.get(arm, 0) < self.crash_budget
        ]
        if not left:
            raise NoFeasibleArmError(
                "the published algorithm pruned every batch size: none reached the target twice; offer other batch "
                "sizes, set a target that they reach, or use policy ThompsonSampling"
            )
        rewards: dict[int, list[float]] = {size: [] for size in left}
        for observation in observations:
            learned = observation.outcome is not Outcome.CRASHED and not observation.other_target
            if learned and observation.batch_size in rewards:
                rewards[observation.batch_size].append(-observation.cost_joules(context.eta))
        return tuple(gaussian_arm(size, paid[-self.window :]) for size, paid in rewards.items())


def gaussian_arm(batch_size: int, rewards: Sequence[float]) -> GaussianArm:
    """Posterior of the mean reward with a flat prior and the rewards' own population variance.

    Example:
        >>> gaussian_arm(8, [-10.0, -14.0])
        GaussianArm(batch_size=8, observations=2, mean=-12.0, precision=0.5)
    """
    count = len(rewards)
    mean = math.fsum(rewards) / count
    same = min(rewards) == max(rewards)
    variance = 0.0 if same else math.fsum((reward - mean) ** 2 for reward in rewards) / count
    return GaussianArm(batch_size, count, mean, math.inf if variance == 0 else count / variance)


def _parameters(context: DecisionContext) -> ParameterValues:
    """The parameters of every attempt.

    Raises:
        ValueError: A parameter has several candidates.
    """
    searched = next((each.name for each in context.parameters if len(each.candidates) > 1), None)
    if searched is not None:
        raise ValueError(
            f"policy zeus chooses the batch size alone, but parameter {searched} has several candidates; use policy "
            "thompsonSampling or grid, or give one candidate"
        )
    return context.space.configurations[context.space.default].parameters


def _has_default_parameters(context: DecisionContext, observation: Observation) -> bool:
    space = context.space
    return space.index(space.default_batch_size, observation.parameters) == space.default


def _results(observations: Sequence[Observation], eta: float, crash_budget: int) -> list[RunResult]:
    """The results for the pruning stage: runs, and each ``crash_budget`` consecutive crashes as a failed run."""
    results: list[RunResult] = []
    crashes: dict[int, int] = {}
    for observation in observations:
        size = observation.batch_size
        crashes[size] = crashes.get(size, 0) + 1 if observation.outcome is Outcome.CRASHED else 0
        if observation.other_target:
            continue
        if observation.outcome is not Outcome.CRASHED:
            results.append(RunResult(size, observation.cost_joules(eta), observation.outcome is Outcome.REACHED))
        elif crashes[size] % crash_budget == 0:
            results.append(RunResult(size, math.inf, reached=False))
    return results


def _meanwhile(next_batch_size: int, cheapest: int | None) -> Decision:
    """The decision while the requested exploration is in flight: the cheapest size so far."""
    size = next_batch_size if cheapest is None else cheapest
    reason = f"batch size {next_batch_size} is being explored; meanwhile batch size {size}, the cheapest so far"
    return Decision(size, ChoiceKind.INCUMBENT, reason)


def _best_known(default: int, cheapest: int | None, stop: float | None) -> Decision:
    """The decision of the published simulation while any attempt is in flight."""
    size = default if cheapest is None else cheapest
    known = "the default, since none has reached the target" if cheapest is None else "the cheapest so far"
    return Decision(size, ChoiceKind.INCUMBENT, f"an attempt is in flight; meanwhile batch size {size}, {known}", stop)


def _sampled(arms: Sequence[GaussianArm], generator: np.random.Generator) -> int:
    underexplored = [arm.batch_size for arm in arms if arm.observations < MIN_OBSERVATIONS]
    if underexplored:
        return underexplored[int(generator.integers(len(underexplored)))]
    draws = generator.standard_normal(len(arms))
    samples = [
        arm.mean + (0.0 if math.isinf(arm.precision) else draw / math.sqrt(arm.precision))
        for arm, draw in zip(arms, draws.tolist(), strict=True)
    ]
    return arms[max(range(len(arms)), key=samples.__getitem__)].batch_size
