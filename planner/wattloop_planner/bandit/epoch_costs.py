"""Cost of an epoch for each configuration and GPU model, from what the attempts cost in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector, conditioned
from wattloop_planner.bandit.kernel import prior_covariance, prior_mean
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.priors import EPOCH_COST, OTHER_GPU
from wattloop_planner.bandit.start_ups import EXACT_PRECISION, ROUGH_SD, AttemptParts, EpochForecast, StartUps
from wattloop_planner.observations import Observation

# A smaller change of the log cost of an epoch, or one of fewer standard deviations, is no change of the level.
LEVEL_CHANGE, LEVEL_DEVIATIONS = 0.05, 3.0
# Standard deviation of the log cost of an epoch between runs, before any arm has repeated, and its weight in runs.
PRIOR_SD, PRIOR_WEIGHT = 0.02, 1.0
# Before the first recurrence.
FIRST = (-1, 0)
# Runs of each arm that count.
LATEST_RUNS = 24
# Assumed overhead of a profiled epoch, in epochs, before one is measured.
DEFAULT_OVERHEAD = 0.1
# Lower bound of costs and epochs whose logarithm is taken.
MIN_POSITIVE = 1e-30
# Logs that differ by less are equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class LevelledCosts:
    """Log costs of an epoch in consecutive runs, as they would be at the latest level.

    Attributes:
        logs: The log costs, in the order of the runs.
        noise_sd: Standard deviation between the runs of one arm.
        since: Index of the first run at the latest level; 0 if the level never changed.
    """

    logs: list[float]
    noise_sd: float
    since: int


@dataclass(frozen=True)
class _Deviation:
    """The difference of a run from the mean of its arm, and from the run of it before."""

    run: int
    log_ratio: float
    square: float


def levelled_costs(runs: Sequence[tuple[int, float]]) -> LevelledCosts:
    """The costs at the latest level, and how much they vary between runs.

    The epochs of an arm cost the same in each run on a machine of its own, and differ by 40 % where they take
    seconds on a shared one. The differences between consecutive runs of an arm show which. A job whose data have
    grown costs more with every arm: where two runs in a row differ from their arms by the same factor, all earlier
    runs are scaled by it.

    Args:
        runs: Arm and log cost of an epoch of each run, in their order.

    Example:
        >>> grown = [(0, 1.0), (1, 2.0), (0, 1.3), (1, 2.3)]
        >>> levelled = levelled_costs(grown)
        >>> [round(each, 6) for each in levelled.logs], levelled.since
        ([1.3, 2.3, 1.3, 2.3], 2)
        >>> round(levelled_costs([(0, 1.0), (0, 1.4), (0, 0.9), (0, 1.3)]).noise_sd, 2)
        0.27
    """
    logs: list[float] = []
    of_arm: dict[int, list[int]] = {}
    squares, freedom, since = PRIOR_WEIGHT * PRIOR_SD**2, PRIOR_WEIGHT, 0
    # The latest run, if it is far from its arm's mean: the next one shows whether the level has changed.
    far: list[_Deviation] = []
    for index, (arm, log) in enumerate(runs):
        logs.append(log)
        before = of_arm.setdefault(arm, [])
        if before:
            mean = fmean(logs[each] for each in before)
            found = _Deviation(index, log - mean, (log - logs[before[-1]]) ** 2 / 2)
            bound = max(LEVEL_CHANGE, LEVEL_DEVIATIONS * math.sqrt(squares / freedom))
            is_far = abs(found.log_ratio) > bound
            if is_far and far and abs(found.log_ratio - far[0].log_ratio) <= bound:
                change, since = (found.log_ratio + far[0].log_ratio) / 2, far[0].run
                logs[:since] = [each + change for each in logs[:since]]
                far = []
            else:
                noise = far if is_far else [*far, found]
                far = [found] if is_far else []
                squares += sum(each.square for each in noise)
                freedom += len(noise)
        before.append(index)
    squares += sum(each.square for each in far)
    return LevelledCosts(logs, math.sqrt(squares / (freedom + len(far))), since)


def log_of(value: float) -> float:
    """Logarithm of a cost or a number of epochs; 0 counts as `MIN_POSITIVE`."""
    return math.log(max(value, MIN_POSITIVE))


class ShownEpochCost(NamedTuple):
    """What a running attempt shows of the epoch cost of its arm.

    Attributes:
        log_joules: Log of the epoch cost; None if it is not certain whether the start or the epochs surprised.
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
        noise_sd: Standard deviation of the log epoch cost between the runs of an arm.
    """

    mean: Vector
    covariance: Matrix
    measured: Flags
    level_known: bool
    noise_sd: float = PRIOR_SD


@dataclass(frozen=True)
class _Run:
    """An attempt, the precision of its epoch cost, and that cost if it was only expected when the attempt ended."""

    arm: int
    attempt: Observation
    precision: float
    expected_joules: float | None


@dataclass(frozen=True)
class _KnownCosts:
    """Mean log epoch costs of the latest runs; all vectors have shape (arms,), and 0 where nothing is known."""

    values: Vector
    precisions: Vector
    measured: Flags
    noise_sd: float

    def level_above(self, mean: Vector) -> float:
        """Mean difference between the known log epoch costs and `mean`."""
        known = self.precisions > 0
        return float((self.values - mean)[known].mean()) if known.any() else 0.0

    def knows(self, arm: int, log_joules: float, precision: float) -> bool:
        """Whether it says nothing new: a rough cost, or the same one, where a measured one is known."""
        is_rough = precision < EXACT_PRECISION
        return bool(self.measured[arm]) and (is_rough or abs(log_joules - float(self.values[arm])) < ROUNDING)

    def add(self, arm: int, log_joules: float, precision: float) -> None:
        """Count one run, whose own precision is this."""
        added = 1 / (self.noise_sd**2 + 1 / precision)
        self.precisions[arm] += added
        self.values[arm] += (log_joules - self.values[arm]) * added / self.precisions[arm]
        self.measured[arm] |= precision == EXACT_PRECISION

    def copy(self) -> _KnownCosts:
        """An independent copy."""
        return _KnownCosts(self.values.copy(), self.precisions.copy(), self.measured.copy(), self.noise_sd)


class ModelEpochCosts:
    """The latest attempts of each arm on one GPU model, and what their epochs cost."""

    def __init__(self, gpu_model: str, arms: int) -> None:
        self._gpu_model, self._arms = gpu_model, arms
        self._runs: list[_Run] = []
        self._costs: _KnownCosts | None = None
        # Recurrence and attempt of the first run at the present level.
        self.since = FIRST

    def add(self, arm: int, attempt: Observation, precision: float, expected_joules: float | None = None) -> None:
        """Learn from an attempt."""
        of_arm = [index for index, each in enumerate(self._runs) if each.arm == arm]
        if len(of_arm) >= LATEST_RUNS:
            del self._runs[of_arm[0]]
        self._runs.append(_Run(arm, attempt, precision, expected_joules))
        self._costs = None

    @property
    def arms_known(self) -> int:
        """Number of arms with an attempt."""
        return len({each.arm for each in self._runs})

    def has_measured(self, arm: int) -> bool:
        """Whether the cost of an epoch of an arm was measured."""
        return any(each.arm == arm and each.precision == EXACT_PRECISION for each in self._runs)

    def costs(self, start_ups: StartUps) -> _KnownCosts:
        """The epoch costs of the arms, with what is known of all starts by now."""
        if self._costs is None:
            measured = [run for run in self._runs if run.expected_joules is None]
            levelled = levelled_costs([(run.arm, self._log_cost(run, start_ups)) for run in measured])
            if levelled.since:
                attempt = measured[levelled.since].attempt
                self.since = max(self.since, (attempt.recurrence, attempt.attempt))
            zeros = np.zeros(self._arms)
            self._costs = _KnownCosts(zeros, zeros.copy(), zeros > 0, levelled.noise_sd)
            for run, log in zip(measured, levelled.logs, strict=True):
                self._costs.add(run.arm, log, run.precision)
            for run in self._runs:
                if run.expected_joules is not None:
                    self._costs.add(run.arm, log_of(run.expected_joules), run.precision)
        return self._costs

    def _log_cost(self, run: _Run, start_ups: StartUps) -> float:
        if not run.attempt.epochs:
            return log_of(start_ups.epoch(run.attempt) or 0.0)
        return log_of(start_ups.epochs_joules(run.arm, run.attempt, self._gpu_model) / run.attempt.epochs)


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
        gpu_model = observation.gpu_model
        measured, epoch = self.start_ups.measured(observation), self.start_ups.epoch(observation)
        model = self._models.get(gpu_model)
        if model is None:
            model = self._models[gpu_model] = ModelEpochCosts(gpu_model, len(self._space))
        if epoch is None and observation.epochs == 0:
            return
        if measured is not None:
            epochs = 0.0 if epoch is None else observation.epochs
            self.start_ups.add(gpu_model, arm, measured, epochs, epochs * (epoch or 0.0))
        if epoch and not model.has_measured(arm):
            self._overheads.append(_Overhead(arm, observation, observation.cost_joules(self._eta), epoch))
        if epoch is not None or measured is not None:
            # Divided when it is needed, by what is known of all starts by then.
            model.add(arm, observation, EXACT_PRECISION if epoch is not None else ROUGH_SD**-2)
        else:
            parts = self.parts(arm, observation, gpu_model)
            if parts.shows_start_up:
                self.start_ups.add(gpu_model, arm, parts.start_up_joules)
            model.add(arm, observation, parts.epoch_precision, parts.epoch_joules)
        self._posteriors.clear()

    def since(self, gpu_model: str) -> tuple[int, int]:
        """Recurrence and attempt since which epochs have cost what they cost now on a GPU model."""
        model = self._models.get(gpu_model or self._best_measured(excluded=None) or "")
        return FIRST if model is None else model.since

    def shown_by(self, partial: PartialObservation, gpu_model: str) -> ShownEpochCost | None:
        """What a running attempt shows of its arm's epoch cost; mostly the same after each of its epochs.

        None: nothing that is not known.
        """
        arm = self._space.arm(partial.batch_size, partial.parameters)
        gpu_model = gpu_model or self._best_measured(excluded=None) or ""
        parts, own = self.parts(arm, partial, gpu_model), self._models.get(gpu_model)
        shown = None if parts.is_surprising else log_of(parts.epoch_joules)
        if own is not None and (shown is None or own.costs(self.start_ups).knows(arm, shown, parts.epoch_precision)):
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
        model = self._models.get(gpu_model)
        own = None if model is None else model.costs(self.start_ups)
        if shown is not None:
            zeros = np.zeros(len(self._space))
            own = _KnownCosts(zeros, zeros.copy(), zeros > 0, PRIOR_SD) if own is None else own.copy()
            if shown.log_joules is not None:
                own.add(shown.arm, shown.log_joules, shown.precision)
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

    def _posterior(self, gpu_model: str, own: _KnownCosts | None) -> EpochCostPosterior | None:
        mean = prior_mean(EPOCH_COST, self._space)
        covariance = prior_covariance(EPOCH_COST, self._space)
        other_model = self._best_measured(excluded=gpu_model)
        if other_model is not None:
            other = self._models[other_model].costs(self.start_ups)
            mean, covariance = conditioned(mean + other.level_above(mean), covariance, other.values, other.precisions)
            covariance = covariance + prior_covariance(OTHER_GPU, self._space)
        if own is not None:
            mean, covariance = conditioned(mean + own.level_above(mean), covariance, own.values, own.precisions)
            return EpochCostPosterior(mean, covariance, own.measured, bool(own.precisions.any()), own.noise_sd)
        measured = np.zeros(len(self._space), dtype=np.bool_)
        return None if other_model is None else EpochCostPosterior(mean, covariance, measured, level_known=False)

    def _best_measured(self, excluded: str | None) -> str | None:
        """The GPU model with the most measured arms, except `excluded`."""
        models = sorted(model for model in self._models if model != excluded)
        return max(models, key=lambda model: self._models[model].arms_known, default=None)
