"""Policy `thompsonSampling`: Thompson sampling over epochs and epoch cost, each a smooth function of the batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattloop_planner.bandit.arms_left import CRASH_BUDGET, arms_left, nearest_arm
from wattloop_planner.bandit.gaussian_process import Matrix, SmoothPrior, Vector, posterior, prior_covariance
from wattloop_planner.bandit.history import in_order
from wattloop_planner.bandit.policy import Arm, Decision, DecisionKind, Question
from wattloop_planner.observations import Observation, Outcome

COST_PRIOR = SmoothPrior(level=1.0, trend=0.35, wiggle=0.4, length_octaves=3.0, nugget=0.1)
NOISE = 0.1
CENSORED_NOISE = 0.3
NINETY_PERCENT = 1.6448536269514722


@dataclass(frozen=True)
class ThompsonSamplingPolicy:
    """Thompson sampling among the sizes tried and those an octave around them.

    Attributes:
        window: Observations of all arms together that count, the last ones; 0: all.
        beta: Factor of the incumbent's cost at which a trial is stopped.
        crash_budget: Crashes in a row after which an arm is out.
    """

    window: int = 0
    beta: float = 2.0
    crash_budget: int = CRASH_BUDGET

    def decide(self, question: Question) -> Decision:
        """The arm with the best sample; the incumbent on a retry.

        Raises:
            NoArmLeftError: Every arm crashed too often in a row.
        """
        ordered = in_order(question.observations)
        left = arms_left(question.batch_sizes, ordered, self.crash_budget)
        sizes = left.batch_sizes
        runs = [o for o in ordered if o.outcome is not Outcome.CRASHED and o.batch_size in sizes]
        runs = runs[-self.window :]
        default = nearest_arm(sizes, question.default_batch_size)
        if not any(o.outcome is Outcome.REACHED for o in runs):
            tried = {o.batch_size for o in runs}
            size = min((s for s in sizes if s not in tried), key=lambda s: abs(math.log2(s / default)), default=default)
            return Decision(size, DecisionKind.DEFAULT, f"batch size {size}: nothing has reached the target yet")
        mean, covariance, counts = _belief(sizes, default, runs, question.eta)
        arms = tuple(
            _arm(size, *belief) for size, *belief in zip(sizes, counts, mean, covariance.diagonal(), strict=True)
        )
        reached = [
            i for i, s in enumerate(sizes) if any(o.batch_size == s and o.outcome is Outcome.REACHED for o in runs)
        ]
        incumbent = min(reached, key=mean.__getitem__)
        if question.attempt > 0 or question.running:
            return Decision(sizes[incumbent], DecisionKind.INCUMBENT, "the batch size believed cheapest", None, arms)
        candidates = _near(sizes, {o.batch_size for o in runs})
        draws = np.random.default_rng(question.seed).multivariate_normal(mean, covariance, method="cholesky")
        chosen = min(candidates, key=draws.__getitem__)
        if chosen == incumbent:
            return Decision(sizes[chosen], DecisionKind.INCUMBENT, "the batch size believed cheapest", None, arms)
        kind = DecisionKind.SAMPLE if counts[chosen] else DecisionKind.TRIAL
        reason = f"batch size {sizes[chosen]} may be cheaper than {sizes[incumbent]}"
        return Decision(sizes[chosen], kind, reason, self.beta * math.exp(mean[incumbent]), arms)


def _belief(
    sizes: Sequence[int], default: int, runs: Sequence[Observation], eta: float
) -> tuple[Vector, Matrix, list[int]]:
    precisions, sums = np.zeros(len(sizes)), np.zeros(len(sizes))
    counts = [0] * len(sizes)
    for run in runs:
        reached = run.outcome is Outcome.REACHED
        index = sizes.index(run.batch_size)
        counts[index] += 1
        precision = 1 / (NOISE if reached else CENSORED_NOISE) ** 2
        precisions[index] += precision
        sums[index] += precision * (math.log(max(run.cost_joules(eta), 1e-300)) + (0.0 if reached else 0.7))
    values = np.divide(sums, precisions, out=np.zeros(len(sizes)), where=precisions > 0)
    centre = float(values[precisions > 0].mean())
    covariance = prior_covariance(COST_PRIOR, tuple(sizes), default)
    mean, covariance = posterior(covariance, np.full(len(sizes), centre), values, precisions)
    return mean, covariance, counts


def _near(sizes: Sequence[int], tried: set[int]) -> list[int]:
    """Indices of the sizes in the interval tried, and one octave or one step beyond it."""
    lowest, highest = min(tried), max(tried)
    indices = [i for i, size in enumerate(sizes) if lowest / 2 <= size <= highest * 2]
    first, last = sizes.index(lowest), sizes.index(highest)
    return sorted({*indices, max(first - 1, 0), min(last + 1, len(sizes) - 1)})


def _arm(size: int, count: int, mean: float, variance: float) -> Arm:
    half = NINETY_PERCENT * math.sqrt(max(variance, 0.0))
    return Arm(size, count, False, math.exp(mean), math.exp(mean - half), math.exp(mean + half))
