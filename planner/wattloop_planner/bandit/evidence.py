"""What the observations say of each arm, folded one by one: sums, bounds, epoch costs, and when to forget.

Epochs are learned over all GPU models, for they do not depend on it; epoch costs each model by itself. A run that did
not reach the target says that the epochs to it are more than those run: that bound enters once, when it is seen, as the
Gaussian that leaves the posterior with the mean and variance of the exact one (assumed-density filtering).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr

from wattloop.cost import CostModel
from wattloop_planner.bandit.policy import Progress
from wattloop_planner.bandit.smooth_prior import (
    Matrix,
    SmoothPrior,
    Vector,
    posterior,
    prior_covariance,
    prior_mean,
)
from wattloop_planner.observations import Observation, Outcome

# The priors' numbers are rounded maximum-likelihood fits over measured arms; docs/bandit.md says which and how stable.
EPOCHS_PRIOR = SmoothPrior(2.0, 0.15, 0.3, 0.11, 0.05, 0.3, 1.5, 0.05)
EPOCH_COST_PRIOR = SmoothPrior(2.0, -0.15, 0.2, 0.07, 0.03, 0.25, 3.0, 0.025)
# What may differ when a regime ends (another target), for another job, and between the epoch costs of two GPU models.
CHANGED_REGIME = SmoothPrior(0.7, 0.0, 0.15, 0.0, 0.03, 0.15, 1.5, 0.1)
OTHER_JOB = SmoothPrior(0.5, 0.0, 0.1, 0.0, 0.02, 0.1, 1.5, 0.05)
OTHER_GPU = SmoothPrior(1.5, 0.0, 0.1, 0.0, 0.02, 0.1, 3.0, 0.03)

EXACT = 1e6  # precision of the log of a measured epoch cost: known within 0.1 %
ROUGH = 1 / 0.15**2  # the same where only a whole attempt's cost over its epochs is known
LEAST = 1e-30  # a cost or a number of epochs of 0 has no logarithm
LEVEL_CHANGE = 0.05  # change of the log epoch cost of one arm that is taken as a change of all


@dataclass(frozen=True)
class NoisePrior:
    """What is expected of the spread of log epochs between runs of one arm.

    Attributes:
        sd: Its guess.
        weight: Degrees of freedom that the guess is worth.
        least_sd: It is never taken to be smaller.
        heavy_tails: The mean of n runs is trusted like that of n / (1 + heavy_tails / n): a single run that is far off
            must not condemn an arm.
    """

    sd: float = 0.15
    weight: float = 4.0
    least_sd: float = 0.02
    heavy_tails: float = 2.0


@dataclass(frozen=True)
class ChangeDetection:
    """When the runs no longer fit what was learned: two one-sided cumulative sums of standardised surprises.

    Attributes:
        allowance: Surprise that is free of charge, in standard deviations.
        threshold: Sum at which everything older is held to be of another regime; infinite: never.
        largest: One run counts no more than this.
    """

    allowance: float = 1.0
    threshold: float = 6.0
    largest: float = 4.0


@dataclass
class EpochCosts:
    """Log epoch cost of each arm on one GPU model.

    Attributes:
        values: What is known, (arms,).
        precisions: How well, (arms,); 0: not at all.
    """

    values: Vector
    precisions: Vector

    def learn(self, arm: int, value: float, precision: float) -> bool:
        """Take in the epoch cost of an arm; one that has changed takes those of all other arms with it.

        Returns:
            Whether that changed anything.
        """
        if self.precisions[arm] == EXACT:
            if precision < EXACT or value == self.values[arm]:
                return False
            change = value - self.values[arm]
            if abs(change) > LEVEL_CHANGE:
                self.values[self.precisions > 0] += change
        self.values[arm], self.precisions[arm] = value, precision
        return True


@dataclass
class Evidence:
    """All that the observations say, in the current regime.

    Attributes:
        batch_sizes: The arms.
        default: Index of the default.
        eta: Weight of energy.
        noise_prior: Spread between runs.
        detection: When to forget.
        runs: Runs that reached the target, an arm.
        means: Mean of their log epochs.
        squares: Sum of their squared deviations from it.
        bound_values: Bounds from runs that did not reach it, as Gaussian values.
        bound_precisions: Precisions of those.
        ever_reached: Arms that ever reached the target, in any regime.
        ever_run: Arms that ever ran beyond their first epoch.
        epoch_costs: By GPU model.
        overheads: Extra cost of each profiled first epoch, over that of an epoch.
        changes: How often a change of regime was found.
    """

    batch_sizes: tuple[int, ...]
    default: int
    eta: float
    noise_prior: NoisePrior
    detection: ChangeDetection
    runs: Vector = field(init=False)
    means: Vector = field(init=False)
    squares: Vector = field(init=False)
    bound_values: Vector = field(init=False)
    bound_precisions: Vector = field(init=False)
    ever_reached: Vector = field(init=False)
    ever_run: Vector = field(init=False)
    epoch_costs: dict[str, EpochCosts] = field(default_factory=dict)
    overheads: list[float] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        arms = len(self.batch_sizes)
        self.runs, self.means, self.squares = np.zeros(arms), np.zeros(arms), np.zeros(arms)
        self.bound_values, self.bound_precisions = np.zeros(arms), np.zeros(arms)
        self.ever_reached, self.ever_run = np.zeros(arms), np.zeros(arms)
        self.octaves: Vector = np.log2(np.array(self.batch_sizes, dtype=np.float64))
        self._prior_mean: Vector | None = None
        self._prior_covariance = prior_covariance(EPOCHS_PRIOR, self.batch_sizes, self.batch_sizes[self.default])
        self._epochs: tuple[Vector, Matrix, float] | None = None
        self._known_epoch_cost: dict[str, tuple[Vector, Matrix, Vector] | None] = {}
        self._upwards = self._downwards = 0.0
        self._before: Evidence | None = None
        self._since: list[Observation] = []

    def fold(self, observation: Observation) -> None:
        """Take in one observation; crashes and sizes that are no longer offered teach nothing here."""
        if observation.outcome is Outcome.CRASHED or observation.batch_size not in self.batch_sizes:
            return
        arm = self.batch_sizes.index(observation.batch_size)
        self._learn_epoch_cost(arm, observation)
        if observation.epochs <= 0:
            return
        surprise = self._surprise(arm, observation)
        if self._before is None and abs(surprise) > self.detection.allowance:
            self._before = self._copy()
        if self._before is not None:
            self._since.append(observation)
        self._learn_epochs(arm, observation)
        self._watch(surprise)

    def epochs(self) -> tuple[Vector, Matrix, float]:
        """Posterior mean and covariance of the log epochs to the target, and the spread between runs."""
        if self._epochs is None:
            noise = self._noise_sd()
            trusted = self.runs**2 / (self.runs + self.noise_prior.heavy_tails)
            precisions = np.where(self.runs > 0, trusted / noise**2, 0.0)
            total = precisions + self.bound_precisions
            weighted = precisions * self.means + self.bound_precisions * self.bound_values
            values = np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)
            assert self._prior_mean is not None, "nothing has been observed yet"
            mean, covariance = posterior(self._prior_mean, self._prior_covariance, values, total)
            self._epochs = mean, covariance, noise
        return self._epochs

    def epoch_cost(self, gpu_model: str, progress: Progress | None = None) -> tuple[Vector, Matrix, Vector] | None:
        """Posterior mean and covariance of the log epoch cost on a GPU model, and the precisions it rests on.

        Args:
            gpu_model: The model; what others showed counts up to a level.
            progress: An attempt under way whose epoch cost is known.

        Returns:
            None where no epoch cost is known of any model.
        """
        if progress is None and gpu_model in self._known_epoch_cost:
            return self._known_epoch_cost[gpu_model]
        own = self.epoch_costs.get(gpu_model)
        if progress is None:
            self._known_epoch_cost[gpu_model] = self._epoch_cost(gpu_model, own)
            return self._known_epoch_cost[gpu_model]
        own = copy.deepcopy(own) or self._no_epoch_costs()
        model = CostModel(self.eta, progress.max_power_watts)
        cost = model.cost_joules(progress.epoch_energy_joules, progress.epoch_time_seconds)
        own.learn(self.batch_sizes.index(progress.batch_size), _log(cost), EXACT)
        return self._epoch_cost(gpu_model, own)

    def start_regime(self, difference: SmoothPrior) -> None:
        """Hold what was learned of the epochs to be of a regime that differs from the present one by this much."""
        if self._prior_mean is None:
            return
        mean, covariance, _ = self.epochs()
        self._prior_mean = mean
        self._prior_covariance = covariance + prior_covariance(
            difference, self.batch_sizes, self.batch_sizes[self.default]
        )
        for sums in (self.runs, self.means, self.squares, self.bound_values, self.bound_precisions):
            sums[:] = 0
        self._epochs = None

    def _epoch_cost(self, gpu_model: str, own: EpochCosts | None) -> tuple[Vector, Matrix, Vector] | None:
        centre = self.batch_sizes[self.default]
        covariance = prior_covariance(EPOCH_COST_PRIOR, self.batch_sizes, centre)
        mean = prior_mean(EPOCH_COST_PRIOR, self.batch_sizes, centre)
        other = self._best_known_other(gpu_model)
        if other is not None:
            mean, covariance = posterior(mean + _level(other), covariance, other.values, other.precisions)
            covariance = covariance + prior_covariance(OTHER_GPU, self.batch_sizes, centre)
        if own is None:
            return None if other is None else (mean, covariance, np.zeros_like(mean))
        shift = _level(own, mean)
        mean, covariance = posterior(mean + shift, covariance, own.values, own.precisions)
        return mean, covariance, own.precisions

    def _learn_epoch_cost(self, arm: int, observation: Observation) -> None:
        if observation.from_other_job:
            return
        costs = self.epoch_costs.setdefault(observation.gpu_model, self._no_epoch_costs())
        cost = observation.cost_joules(self.eta)
        if observation.epoch_energy_joules is not None and observation.epoch_time_seconds is not None:
            model = CostModel(self.eta, observation.max_power_watts)
            epoch = model.cost_joules(observation.epoch_energy_joules, observation.epoch_time_seconds)
            if costs.precisions[arm] < EXACT and epoch > 0:
                self.overheads.append(max(cost / epoch - observation.epochs, 0.0))
            changed = costs.learn(arm, _log(epoch), EXACT)
        elif observation.epochs > 0:
            changed = costs.learn(arm, _log(cost / observation.epochs), ROUGH)
        else:
            return
        if changed:
            self._known_epoch_cost.clear()

    def _learn_epochs(self, arm: int, observation: Observation) -> None:
        value = _log(observation.epochs)
        if self._prior_mean is None:
            shape = prior_mean(EPOCHS_PRIOR, self.batch_sizes, self.batch_sizes[self.default])
            self._prior_mean = shape + (value - shape[arm])
        if observation.epochs > 1 or observation.outcome is Outcome.REACHED:
            self.ever_run[arm] = 1
        if observation.outcome is Outcome.REACHED:
            self.ever_reached[arm] = 1
            self.runs[arm] += 1
            step = value - self.means[arm]
            self.means[arm] += step / self.runs[arm]
            self.squares[arm] += step * (value - self.means[arm])
        else:
            self._learn_bound(arm, value)
        self._epochs = None

    def _learn_bound(self, arm: int, bound: float) -> None:
        """The epochs to the target are more than these: match the moments of the truncated posterior."""
        mean, covariance, noise = self.epochs()
        variance = float(covariance[arm, arm])
        spread = math.sqrt(variance + noise**2)
        z = (float(mean[arm]) - bound) / spread
        ratio = math.exp(-z * z / 2 - float(log_ndtr(z))) / math.sqrt(2 * math.pi)
        left = min(variance - variance**2 * ratio * (z + ratio) / spread**2, variance * (1 - 1e-9))
        left = max(left, variance * 1e-6)
        precision = 1 / left - 1 / variance
        value = ((mean[arm] + variance * ratio / spread) / left - mean[arm] / variance) / precision
        total = self.bound_precisions[arm] + precision
        self.bound_values[arm] += (value - self.bound_values[arm]) * precision / total
        self.bound_precisions[arm] = total

    def _noise_sd(self) -> float:
        prior = self.noise_prior
        squares = prior.weight * prior.sd**2 + float(self.squares.sum())
        freedom = prior.weight + float(np.maximum(self.runs - 1, 0).sum())
        return max(math.sqrt(squares / freedom), prior.least_sd)

    def _surprise(self, arm: int, observation: Observation) -> float:
        """How far the run is from what was expected, in standard deviations; 0 where it says nothing of a change."""
        if self._prior_mean is None or not self.ever_reached[arm]:
            return 0.0
        mean, covariance, noise = self.epochs()
        away = (_log(observation.epochs) - float(mean[arm])) / math.sqrt(float(covariance[arm, arm]) + noise**2)
        if observation.outcome is not Outcome.REACHED:
            away = max(away, 0.0)
        return min(max(away, -self.detection.largest), self.detection.largest)

    def _watch(self, surprise: float) -> None:
        detection = self.detection
        self._upwards = max(0.0, self._upwards + surprise - detection.allowance)
        self._downwards = max(0.0, self._downwards - surprise - detection.allowance)
        if max(self._upwards, self._downwards) >= detection.threshold and self._before is not None:
            self._change_regime(self._before, self._since)
        elif self._upwards == self._downwards == 0:
            self._before, self._since = None, []

    def _change_regime(self, before: Evidence, since: list[Observation]) -> None:
        """Go back to before the runs that did not fit, end the regime there, and learn them anew."""
        epoch_costs, overheads, changes = self.epoch_costs, self.overheads, self.changes + 1
        ever_reached, ever_run = self.ever_reached, self.ever_run
        self.__dict__.update(before._copy().__dict__)
        self.epoch_costs, self.overheads, self.changes = epoch_costs, overheads, changes
        self.start_regime(CHANGED_REGIME)
        self._upwards = self._downwards = 0.0
        self._before, self._since = None, []
        for observation in since:
            self._learn_epochs(self.batch_sizes.index(observation.batch_size), observation)
        self.ever_reached, self.ever_run = ever_reached, ever_run

    def _copy(self) -> Evidence:
        clone = copy.copy(self)
        for name in ("runs", "means", "squares", "bound_values", "bound_precisions", "ever_reached", "ever_run"):
            setattr(clone, name, getattr(self, name).copy())
        clone._before, clone._since = None, []
        return clone

    def _no_epoch_costs(self) -> EpochCosts:
        return EpochCosts(np.zeros(len(self.batch_sizes)), np.zeros(len(self.batch_sizes)))

    def _best_known_other(self, gpu_model: str) -> EpochCosts | None:
        """The epoch costs of that other GPU model of which most arms are known."""
        others = [(model, costs) for model, costs in sorted(self.epoch_costs.items()) if model != gpu_model]
        return max(others, key=lambda item: np.count_nonzero(item[1].precisions))[1] if others else None


def _level(costs: EpochCosts, mean: Vector | float = 0.0) -> float:
    """Mean of what is known above a mean, (arms,)."""
    known = costs.precisions > 0
    above = costs.values - mean
    return float(above[known].mean()) if known.any() else 0.0


def _log(value: float) -> float:
    return math.log(max(value, LEAST))
