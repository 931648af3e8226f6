"""Policy `zeus`: the published algorithm (Zeus, NSDI '23, section 4), for comparison; not recommended.

Pruning (two rounds, each down and then up from the default), then Gaussian Thompson sampling over the
survivors, with an early stop at β times the lowest cost so far.

Properties of the algorithm that are kept, although they are defects: in the sampling stage the cost of a
run that missed the target counts as a reward; identical runs give an arm infinite precision; the window
is per arm; the lowest cost never expires; another GPU model starts without knowledge.

Differences from the published implementation: a lost exploration is requested again; an arm that crashes
repeatedly is pruned; late results are used; every arm draws its own random number; if all sizes are
pruned, the error message gives a remedy; a run that was stopped early does not lower the bound.
"""

import math
from collections.abc import Generator, Iterable, Sequence
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
from wattloop_planner.observations import Observation, Outcome, ParameterValues

ROUNDS = 2
MIN_OBSERVATIONS = 2


@dataclass(frozen=True)
class RunResult:
    """The result of one run in the pruning stage.

    Attributes:
        reached: Whether it reached the target; a size survives if it did.
    """

    batch_size: int
    cost_joules: float
    reached: bool


@dataclass(frozen=True)
class Pruning:
    """The state of the pruning stage.

    Attributes:
        next_batch_size: The size to run next; None once the stage is over.
        survivors: The remaining sizes in rising order once the stage is over; empty if all were pruned.
    """

    next_batch_size: int | None
    survivors: tuple[int, ...] = ()


def pruning_after(batch_sizes: tuple[int, ...], default: int, results: Iterable[RunResult]) -> Pruning:
    """The state after these results, in order.

    A result of another size than the requested one is ignored.

    Args:
        batch_sizes: All sizes, rising.
        default: The size that the first round starts from.
        results: Results so far.

    Example:
        >>> pruning_after((8, 16, 32), 16, [RunResult(16, 5.0, True), RunResult(8, 9.0, False)])
        Pruning(next_batch_size=32, survivors=())
    """
    stage = _pruning(batch_sizes, default)
    next_batch_size = next(stage)
    try:
        for result in results:
            if result.batch_size == next_batch_size:
                next_batch_size = stage.send(result)
    except StopIteration as end:
        return Pruning(None, end.value)
    return Pruning(next_batch_size)


def _pruning(batch_sizes: tuple[int, ...], default: int) -> Generator[int, RunResult, tuple[int, ...]]:
    sizes = list(batch_sizes)
    for _ in range(ROUNDS):
        if default not in sizes:
            return ()
        start = sizes.index(default)
        reached: list[int] = []
        min_cost = float("inf")
        for direction in (sizes[start::-1], sizes[start + 1 :]):
            for size in direction:
                result = yield size
                if not result.reached:
                    break
                reached.append(size)
                if result.cost_joules < min_cost:
                    min_cost, default = result.cost_joules, size
        sizes = sorted(reached)
    return tuple(sizes)


@dataclass(frozen=True)
class GaussianArm:
    """Posterior of an arm's mean reward (−cost), a Gaussian.

    Attributes:
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
        overlap: What runs while other attempts are in flight.
    """

    window: int = 0
    beta: float = 2.0
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
            size, known = context.space.default_batch_size, "the default, since none has reached the target"
            if state.cheapest is not None:
                size, known = state.cheapest, "the cheapest so far"
            reason = f"an attempt is in flight; meanwhile batch size {size}, {known}"
            return Decision(size, ChoiceKind.INCUMBENT, reason, stop)
        if state.next_batch_size is not None:
            if state.next_batch_size in (each.batch_size for each in context.running):
                size = state.next_batch_size if state.cheapest is None else state.cheapest
                explored = f"batch size {state.next_batch_size} is being explored"
                reason = f"{explored}; meanwhile batch size {size}, the cheapest so far"
                return Decision(size, ChoiceKind.INCUMBENT, reason)
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
        space = context.space
        # An excluded size counts as if it had never been offered.
        offered = tuple(size for arm, size in enumerate(context.batch_sizes) if arm not in context.arms_excluded)
        observations = [
            o
            for o in own_observations(context)
            if o.batch_size in offered and space.index(space.default_batch_size, o.parameters) == space.default
        ]
        results = _results(observations, context.eta)
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
            if size in pruning.survivors and crashes.get(arm, 0) < CRASH_BUDGET
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
    """The parameters of every attempt."""
    searched = next((each.name for each in context.parameters if len(each.candidates) > 1), None)
    if searched is not None:
        raise ValueError(
            f"policy zeus chooses the batch size alone, but parameter {searched} has several candidates; use policy "
            "thompsonSampling or grid, or give one candidate"
        )
    return context.space.configurations[context.space.default].parameters


def _results(observations: Sequence[Observation], eta: float) -> list[RunResult]:
    """The results for the pruning stage: runs, and each `CRASH_BUDGET` consecutive crashes as a failed run."""
    results: list[RunResult] = []
    crashes: dict[int, int] = {}
    for observation in observations:
        size = observation.batch_size
        crashes[size] = crashes.get(size, 0) + 1 if observation.outcome is Outcome.CRASHED else 0
        if observation.other_target:
            continue
        if observation.outcome is not Outcome.CRASHED:
            results.append(RunResult(size, observation.cost_joules(eta), observation.outcome is Outcome.REACHED))
        elif crashes[size] % CRASH_BUDGET == 0:
            results.append(RunResult(size, math.inf, reached=False))
    return results


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
