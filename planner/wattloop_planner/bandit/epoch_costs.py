"""What an epoch costs with each batch size on each GPU model: almost free of noise, once one epoch was profiled."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from wattloop.cost import CostModel
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.priors import EPOCH_COST, OTHER_GPU
from wattloop_planner.bandit.smooth_prior import Flags, Matrix, Vector, posterior, prior_covariance, prior_mean
from wattloop_planner.observations import Observation

EXACT = 1e6  # precision of the log of a measured epoch cost: known within 0.1 %
ROUGH = 1 / 0.15**2  # the same where only a whole attempt's cost over its epochs is known
LEVEL_CHANGE = 0.05  # change of the log epoch cost of one arm that is taken as a change of all
USUAL_OVERHEAD = 0.1  # of a profiled epoch, before one was seen
LEAST = 1e-30  # a cost or a number of epochs of 0 has no logarithm

Profile = tuple[float | None, float | None, float]


def log_of(value: float) -> float:
    """Logarithm of a cost or a number of epochs, 0 taken as the least that has one."""
    return math.log(max(value, LEAST))


@dataclass(frozen=True)
class EpochCostBelief:
    """Gaussian belief of the log epoch cost of each arm on one GPU model.

    Attributes:
        mean: Means, (arms,).
        covariance: Their covariance, (arms, arms).
        measured: Which arms were measured exactly, (arms,).
        level_known: Whether anything was measured on this model; otherwise a common factor is open.
    """

    mean: Vector
    covariance: Matrix
    measured: Flags
    level_known: bool


class ModelEpochCosts:
    """Log epoch costs seen on one GPU model."""

    def __init__(self, arms: int) -> None:
        self.values: Vector = np.zeros(arms)
        self.precisions: Vector = np.zeros(arms)
        self.last_profiles: dict[int, Profile] = {}

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
                self.last_profiles.clear()
        self.values[arm], self.precisions[arm] = value, precision
        return True

    def level_above(self, mean: Vector) -> float:
        """Mean of what was seen above a mean of all arms."""
        known = self.precisions > 0
        return float((self.values - mean)[known].mean()) if known.any() else 0.0


class EpochCosts:
    """Epoch costs of a job's arms on every GPU model it ran on."""

    def __init__(self, batch_sizes: tuple[int, ...], default: int, eta: float) -> None:
        self._batch_sizes, self._centre, self._eta = batch_sizes, batch_sizes[default], eta
        self._models: dict[str, ModelEpochCosts] = {}
        self._beliefs: dict[str, EpochCostBelief | None] = {}
        self._overheads: list[float] = []

    @property
    def profiling_overhead(self) -> float:
        """What profiling adds to a first epoch, in epochs, on average."""
        return math.fsum(self._overheads) / len(self._overheads) if self._overheads else USUAL_OVERHEAD

    def update(self, arm: int, observation: Observation) -> None:
        """Take in what an attempt of this job shows; epoch costs of another job are of other epochs."""
        if observation.from_other_job:
            return
        model = self._models.get(observation.gpu_model)
        if model is None:
            model = self._models[observation.gpu_model] = ModelEpochCosts(len(self._batch_sizes))
        energy, time = observation.epoch_energy_joules, observation.epoch_time_seconds
        profile = (energy, time, observation.max_power_watts)
        if energy is None or time is None:
            if observation.epochs > 0:
                cost = observation.cost_joules(self._eta) / observation.epochs
                self._learned(model.learn(arm, log_of(cost), ROUGH))
            return
        if model.last_profiles.get(arm) == profile:
            return
        epoch = CostModel(self._eta, observation.max_power_watts).cost_joules(energy, time)
        if model.precisions[arm] < EXACT and epoch > 0:
            self._overheads.append(max(observation.cost_joules(self._eta) / epoch - observation.epochs, 0.0))
        self._learned(model.learn(arm, log_of(epoch), EXACT))
        model.last_profiles[arm] = profile

    def belief(self, gpu_model: str, progress: PartialObservation | None = None) -> EpochCostBelief | None:
        """What is believed on a GPU model, what others showed counting up to a level; None before anything is known.

        Args:
            gpu_model: The model; where it is not known, that of which most arms are known.
            progress: An attempt under way whose epoch cost is known.
        """
        gpu_model = gpu_model or self._best_known(but=None) or ""
        own = self._models.get(gpu_model)
        if progress is not None:
            own = copy.deepcopy(own) or ModelEpochCosts(len(self._batch_sizes))
            model = CostModel(self._eta, progress.max_power_watts)
            cost = model.cost_joules(progress.epoch_energy_joules, progress.epoch_time_seconds)
            own.learn(self._batch_sizes.index(progress.batch_size), log_of(cost), EXACT)
            return self._belief(gpu_model, own)
        if gpu_model not in self._beliefs:
            self._beliefs[gpu_model] = self._belief(gpu_model, own)
        return self._beliefs[gpu_model]

    def _belief(self, gpu_model: str, own: ModelEpochCosts | None) -> EpochCostBelief | None:
        mean = prior_mean(EPOCH_COST, self._batch_sizes, self._centre)
        covariance = prior_covariance(EPOCH_COST, self._batch_sizes, self._centre)
        other_model = self._best_known(but=gpu_model)
        if other_model is not None:
            other = self._models[other_model]
            mean, covariance = posterior(mean + other.level_above(mean), covariance, other.values, other.precisions)
            covariance = covariance + prior_covariance(OTHER_GPU, self._batch_sizes, self._centre)
        if own is not None:
            mean, covariance = posterior(mean + own.level_above(mean), covariance, own.values, own.precisions)
            return EpochCostBelief(mean, covariance, own.precisions == EXACT, bool(own.precisions.any()))
        nothing = np.zeros(len(self._batch_sizes), dtype=np.bool_)
        return None if other_model is None else EpochCostBelief(mean, covariance, nothing, level_known=False)

    def _learned(self, changed: bool) -> None:
        if changed:
            self._beliefs.clear()

    def _best_known(self, but: str | None) -> str | None:
        """That GPU model, but this one, of which most arms are known."""
        models = sorted(model for model in self._models if model != but)
        return max(models, key=lambda model: np.count_nonzero(self._models[model].precisions), default=None)
