"""Cost of an epoch for each configuration and GPU model; almost free of noise once it is profiled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wattloop.cost import CostModel
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector, condition
from wattloop_planner.bandit.kernel import prior_covariance, prior_mean
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.priors import EPOCH_COST, OTHER_GPU
from wattloop_planner.bandit.start_ups import StartUps
from wattloop_planner.observations import Observation

# Precision of the log of a measured epoch cost: known within 0.1 %.
EXACT_PRECISION = 1e6
# Precision of the log of an epoch cost that is an attempt's cost divided by its epochs.
ROUGH_PRECISION = 1 / 0.15**2
# A change of one arm's log epoch cost by more than this applies to all arms.
LEVEL_CHANGE = 0.05
# Assumed overhead of a profiled epoch, in epochs, before one is measured.
DEFAULT_OVERHEAD = 0.1
# Lower bound of costs and epochs whose logarithm is taken.
MIN_POSITIVE = 1e-30

Profile = tuple[float | None, float | None, float]


def log_of(value: float) -> float:
    """Logarithm of a cost or a number of epochs; 0 counts as `MIN_POSITIVE`."""
    return math.log(max(value, MIN_POSITIVE))


@dataclass(frozen=True)
class EpochCostPosterior:
    """Gaussian posterior of the log epoch cost of each arm on one GPU model.

    Attributes:
        mean: Means, shape (arms,).
        covariance: Covariance, shape (arms, arms).
        measured: Which arms were measured exactly, shape (arms,).
        level_known: Whether this model has measurements. If not, costs are known up to a common factor.
    """

    mean: Vector
    covariance: Matrix
    measured: Flags
    level_known: bool


class ModelEpochCosts:
    """Log epoch costs measured on one GPU model."""

    def __init__(self, arms: int) -> None:
        self.values: Vector = np.zeros(arms)
        self.precisions: Vector = np.zeros(arms)
        self.last_profiles: dict[int, Profile] = {}

    def copy(self) -> ModelEpochCosts:
        """An independent copy."""
        clone = ModelEpochCosts(len(self.values))
        clone.values[:], clone.precisions[:] = self.values, self.precisions
        clone.last_profiles.update(self.last_profiles)
        return clone

    def update(self, arm: int, value: float, precision: float) -> bool:
        """Record the epoch cost of an arm; a changed exact cost shifts the costs of all arms.

        Returns:
            Whether any cost changed.
        """
        if self.precisions[arm] == EXACT_PRECISION:
            if precision < EXACT_PRECISION or value == self.values[arm]:
                return False
            change = value - self.values[arm]
            if abs(change) > LEVEL_CHANGE:
                self.values[self.precisions > 0] += change
                self.last_profiles.clear()
        self.values[arm], self.precisions[arm] = value, precision
        return True

    def level_above(self, mean: Vector) -> float:
        """Mean difference between the measured log epoch costs and `mean`, shape (arms,)."""
        known = self.precisions > 0
        return float((self.values - mean)[known].mean()) if known.any() else 0.0


@dataclass(frozen=True)
class _Overhead:
    """The first attempt of an arm whose epoch cost was measured: what it cost beyond its epochs."""

    observation: Observation
    cost_joules: float
    epoch_cost_joules: float

    def epochs(self, start_ups: StartUps) -> float:
        """The overhead of profiling in epochs: without the start of the attempt, which others pay too."""
        cost = self.cost_joules - start_ups.cost_of(self.observation, self.observation.gpu_model)
        return max(cost / self.epoch_cost_joules - self.observation.epochs, 0.0)


class EpochCosts:
    """Epoch costs of a job's arms on every GPU model it ran on."""

    def __init__(self, space: ConfigurationSpace, eta: float) -> None:
        self._space, self._eta = space, eta
        self._models: dict[str, ModelEpochCosts] = {}
        self._posteriors: dict[str, EpochCostPosterior | None] = {}
        self._overheads: list[_Overhead] = []
        self.start_ups = StartUps(eta)

    @property
    def profiling_overhead(self) -> float:
        """Mean overhead of profiling the first epoch, in epochs."""
        overheads = [each.epochs(self.start_ups) for each in self._overheads]
        return math.fsum(overheads) / len(overheads) if overheads else DEFAULT_OVERHEAD

    def update(self, arm: int, observation: Observation) -> None:
        """Learn from an attempt; epoch costs of another job do not apply."""
        if observation.from_other_job:
            return
        model = self._models.get(observation.gpu_model)
        if model is None:
            model = self._models[observation.gpu_model] = ModelEpochCosts(len(self._space))
        self.start_ups.add(observation)
        energy, time = observation.epoch_energy_joules, observation.epoch_time_seconds
        profile = (energy, time, observation.max_power_watts)
        if energy is None or time is None:
            if observation.epochs > 0:
                start_up = self.start_ups.cost_of(observation, observation.gpu_model)
                cost = (observation.cost_joules(self._eta) - start_up) / observation.epochs
                self._invalidate_if(model.update(arm, log_of(cost), ROUGH_PRECISION))
            return
        if model.last_profiles.get(arm) == profile:
            return
        epoch = CostModel(self._eta, observation.max_power_watts).cost_joules(energy, time)
        if model.precisions[arm] < EXACT_PRECISION and epoch > 0:
            self._overheads.append(_Overhead(observation, observation.cost_joules(self._eta), epoch))
        self._invalidate_if(model.update(arm, log_of(epoch), EXACT_PRECISION))
        model.last_profiles[arm] = profile

    def posterior(self, gpu_model: str, partial: PartialObservation | None = None) -> EpochCostPosterior | None:
        """The posterior on a GPU model; other models contribute up to a common factor.

        Args:
            gpu_model: The GPU model; if empty, the model with the most measured arms.
            partial: A running attempt whose epoch cost is known.

        Returns:
            None before any model has measurements.
        """
        gpu_model = gpu_model or self._best_measured(excluded=None) or ""
        own = self._models.get(gpu_model)
        if partial is not None:
            own = ModelEpochCosts(len(self._space)) if own is None else own.copy()
            cost, precision = self._running_epoch_cost(partial, gpu_model)
            own.update(self._space.arm(partial.batch_size, partial.parameters), log_of(cost), precision)
            return self._posterior(gpu_model, own)
        if gpu_model not in self._posteriors:
            self._posteriors[gpu_model] = self._posterior(gpu_model, own)
        return self._posteriors[gpu_model]

    def _running_epoch_cost(self, partial: PartialObservation, gpu_model: str) -> tuple[float, float]:
        """Epoch cost of a running attempt, and the precision of its log."""
        model = CostModel(self._eta, partial.max_power_watts)
        if partial.epoch_energy_joules is not None and partial.epoch_time_seconds is not None:
            return model.cost_joules(partial.epoch_energy_joules, partial.epoch_time_seconds), EXACT_PRECISION
        start_up = self.start_ups.cost_of(partial, gpu_model)
        paid = model.cost_joules(partial.energy_joules, partial.time_seconds)
        # Without any start that was measured, the mean of the epochs is all that is known.
        return (paid - start_up) / partial.epochs, ROUGH_PRECISION if start_up else EXACT_PRECISION

    def _posterior(self, gpu_model: str, own: ModelEpochCosts | None) -> EpochCostPosterior | None:
        mean = prior_mean(EPOCH_COST, self._space)
        covariance = prior_covariance(EPOCH_COST, self._space)
        other_model = self._best_measured(excluded=gpu_model)
        if other_model is not None:
            other = self._models[other_model]
            mean, covariance = condition(mean + other.level_above(mean), covariance, other.values, other.precisions)
            covariance = covariance + prior_covariance(OTHER_GPU, self._space)
        if own is not None:
            mean, covariance = condition(mean + own.level_above(mean), covariance, own.values, own.precisions)
            return EpochCostPosterior(mean, covariance, own.precisions == EXACT_PRECISION, bool(own.precisions.any()))
        measured = np.zeros(len(self._space), dtype=np.bool_)
        return None if other_model is None else EpochCostPosterior(mean, covariance, measured, level_known=False)

    def _invalidate_if(self, changed: bool) -> None:
        if changed:
            self._posteriors.clear()

    def _best_measured(self, excluded: str | None) -> str | None:
        """The GPU model with the most measured arms, except `excluded`."""
        models = sorted(model for model in self._models if model != excluded)
        return max(models, key=lambda model: np.count_nonzero(self._models[model].precisions), default=None)
