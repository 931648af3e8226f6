"""Cost of an epoch for each configuration and GPU model; almost free of noise once it is profiled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector, conditioned
from wattloop_planner.bandit.kernel import prior_covariance, prior_mean
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.priors import EPOCH_COST, OTHER_GPU
from wattloop_planner.bandit.start_ups import EXACT_PRECISION, AttemptParts, EpochForecast, StartUps
from wattloop_planner.observations import Observation

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


class ShownEpochCost(NamedTuple):
    """What a running attempt shows of the epoch cost of its arm.

    Attributes:
        arm: The arm.
        log_joules: Log of the epoch cost; None if it is not certain whether the start or the epochs surprised.
        precision: Precision of this value.
    """

    arm: int
    log_joules: float | None
    precision: float


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
        if self.knows(arm, value, precision):
            return False
        if self.precisions[arm] == EXACT_PRECISION:
            change = value - self.values[arm]
            if abs(change) > LEVEL_CHANGE:
                self.values[self.precisions > 0] += change
                self.last_profiles.clear()
        self.values[arm], self.precisions[arm] = value, precision
        return True

    def knows(self, arm: int, value: float, precision: float) -> bool:
        """Whether an epoch cost of an arm says nothing new: a rough one, or the same, where an exact one is known."""
        is_exact = bool(self.precisions[arm] == EXACT_PRECISION)
        return is_exact and (precision < EXACT_PRECISION or bool(value == self.values[arm]))

    def level_above(self, mean: Vector) -> float:
        """Mean difference between the measured log epoch costs and `mean`, shape (arms,)."""
        known = self.precisions > 0
        return float((self.values - mean)[known].mean()) if known.any() else 0.0


@dataclass(frozen=True)
class _Overhead:
    """The first attempt of an arm whose epoch cost was measured: what it cost beyond its epochs."""

    arm: int
    observation: Observation
    cost_joules: float
    epoch_cost_joules: float

    def epochs(self, start_ups: StartUps) -> float:
        """The overhead of profiling in epochs: without the start of the attempt, which others pay too."""
        cost = self.cost_joules - start_ups.cost_of(self.arm, self.observation, self.observation.gpu_model)
        return max(cost / self.epoch_cost_joules - self.observation.epochs, 0.0)


class EpochCosts:
    """Epoch costs of a job's arms on every GPU model it ran on."""

    def __init__(self, space: ConfigurationSpace, eta: float) -> None:
        self._space, self._eta = space, eta
        self._models: dict[str, ModelEpochCosts] = {}
        self._posteriors: dict[str, EpochCostPosterior | None] = {}
        self._overheads: list[_Overhead] = []
        self.start_ups = StartUps(eta, len(space))

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
        energy, time = observation.epoch_energy_joules, observation.epoch_time_seconds
        profile = (energy, time, observation.max_power_watts)
        if (energy is None or time is None) and observation.epochs == 0:
            return
        parts = self.parts(arm, observation, observation.gpu_model)
        if parts.shows_start_up:
            self.start_ups.add(observation.gpu_model, arm, parts.start_up_joules)
        if model.last_profiles.get(arm) == profile:
            return
        is_measured = parts.epoch_precision == EXACT_PRECISION
        if is_measured and model.precisions[arm] < EXACT_PRECISION and parts.epoch_joules > 0:
            overhead = _Overhead(arm, observation, observation.cost_joules(self._eta), parts.epoch_joules)
            self._overheads.append(overhead)
        self._invalidate_if(model.update(arm, log_of(parts.epoch_joules), parts.epoch_precision))
        if is_measured:
            model.last_profiles[arm] = profile

    def shown_by(self, partial: PartialObservation, gpu_model: str) -> ShownEpochCost | None:
        """What a running attempt shows of its arm's epoch cost; mostly the same after each of its epochs.

        None: nothing that is not known.
        """
        arm = self._space.arm(partial.batch_size, partial.parameters)
        gpu_model = gpu_model or self._best_measured(excluded=None) or ""
        parts, own = self.parts(arm, partial, gpu_model), self._models.get(gpu_model)
        shown = None if parts.is_surprising else log_of(parts.epoch_joules)
        if own is not None and (shown is None or own.knows(arm, shown, parts.epoch_precision)):
            return None
        return ShownEpochCost(arm, shown, parts.epoch_precision)

    def posterior(self, gpu_model: str, shown: ShownEpochCost | None = None) -> EpochCostPosterior | None:
        """The posterior on a GPU model; other models contribute up to a common factor.

        Args:
            gpu_model: The GPU model; if empty, the model with the most measured arms.
            shown: What a running attempt shows.

        Returns:
            None before any model has measurements.
        """
        gpu_model = gpu_model or self._best_measured(excluded=None) or ""
        own = self._models.get(gpu_model)
        if shown is not None:
            own = ModelEpochCosts(len(self._space)) if own is None else own.copy()
            if shown.log_joules is not None:
                own.update(shown.arm, shown.log_joules, shown.precision)
            return self._posterior(gpu_model, own)
        if gpu_model not in self._posteriors:
            self._posteriors[gpu_model] = self._posterior(gpu_model, own)
        return self._posteriors[gpu_model]

    def parts(self, arm: int, attempt: Observation | PartialObservation, gpu_model: str) -> AttemptParts:
        """The start and the epochs of an attempt that ran at least a part of an epoch, or of a running one."""
        # What was measured needs no forecast.
        measured = attempt.start_up is not None or None not in (attempt.epoch_energy_joules, attempt.epoch_time_seconds)
        forecast = None if measured else self._forecast(arm, gpu_model)
        return self.start_ups.parts(arm, attempt, gpu_model, forecast)

    def _forecast(self, arm: int, gpu_model: str) -> EpochForecast | None:
        known = self.posterior(gpu_model)
        if known is None or not known.level_known:
            return None
        return EpochForecast(float(known.mean[arm]), math.sqrt(max(float(known.covariance[arm, arm]), 0.0)))

    def _posterior(self, gpu_model: str, own: ModelEpochCosts | None) -> EpochCostPosterior | None:
        mean = prior_mean(EPOCH_COST, self._space)
        covariance = prior_covariance(EPOCH_COST, self._space)
        other_model = self._best_measured(excluded=gpu_model)
        if other_model is not None:
            other = self._models[other_model]
            mean, covariance = conditioned(mean + other.level_above(mean), covariance, other.values, other.precisions)
            covariance = covariance + prior_covariance(OTHER_GPU, self._space)
        if own is not None:
            mean, covariance = conditioned(mean + own.level_above(mean), covariance, own.values, own.precisions)
            return EpochCostPosterior(mean, covariance, own.precisions == EXACT_PRECISION, bool(own.precisions.any()))
        measured = np.zeros(len(self._space), dtype=np.bool_)
        return None if other_model is None else EpochCostPosterior(mean, covariance, measured, level_known=False)

    def _invalidate_if(self, changed: bool) -> None:
        if changed:
            self._posteriors.clear()

    def _best_measured(self, excluded: str | None) -> str | None:
        """The GPU model with the most measured arms, except `excluded`."""
        models = sorted(model for model in self._models if model != excluded)
        if len(models) < 2:
            return models[0] if models else None
        return max(models, key=lambda model: np.count_nonzero(self._models[model].precisions), default=None)
