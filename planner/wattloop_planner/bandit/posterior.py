"""Posterior of epochs and epoch costs, updated one observation at a time.

Epochs do not depend on the GPU model and are learned over all models; epoch costs are learned per
model. A run that did not reach the target gives a lower bound of its epochs. The bound enters once, as
the Gaussian factor that gives the posterior the mean and variance of the exact posterior
(assumed-density filtering).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.curve_model import AttemptEpochs, CurveModel, CurvePrediction
from wattloop_planner.bandit.epoch_costs import EpochCosts, log_of
from wattloop_planner.bandit.gaussian_process import Matrix, Vector, condition_mixture
from wattloop_planner.bandit.kernel import distances, prior_covariance, prior_means
from wattloop_planner.bandit.priors import CHANGED_REGIME, EPOCHS, SmoothPrior
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome

# A bound leaves at most this part of the variance: it enters as a Gaussian, which can't add to it.
MAX_VARIANCE_RATIO = 0.999
# An arm with this many runs ignores the other arms when it learns a bound.
OWN_RUNS_SUFFICE = 3
# A prediction from a curve with a lower precision is ignored.
MIN_CURVE_PRECISION = 1.0
# A prediction with a larger standard deviation ends no attempt.
MAX_STOPPING_SD = 0.4
# Prior of the standard deviation of log epochs between runs of one arm: a guess, its degrees of freedom, and a bound.
NOISE_SD, NOISE_WEIGHT, MIN_NOISE_SD = 0.15, 4.0, 0.02
# The mean of n runs has the precision of n / (1 + HEAVY_TAILS / n): one distant run does not exclude an arm.
HEAVY_TAILS = 2.0
# Probability that an arm's only run never reaches the target, independent of the arm.
OUTLIER_PROBABILITY = 0.08
# A change of regime is detected by two one-sided cumulative sums (CUSUM) of residuals in standard deviations: a
# residual beyond the allowance adds to one of them, and older runs belong to another regime at the threshold.
ALLOWANCE, MAX_RESIDUAL, THRESHOLD = 1.0, 4.0, 6.0
# Least value of both sums after the first change of the training's image or template (Lucas and Crosier 1982: half
# of the threshold). After the n-th one that no detected change followed, it is a n-th of this value.
HEAD_START = 3.0
PER_REGIME = ("runs", "means", "bound_values", "bound_precisions", "curve_precisions", "diverged")


@dataclass(frozen=True)
class TrainingIdentity:
    """The latest known template and image of a job.

    Attributes:
        template_digest: Digest of the template; empty if unknown.
        image_digest: Digest of the image; empty if unknown.
        changes: How often one of them, or both, differed from the one before since the count began.
    """

    template_digest: str = ""
    image_digest: str = ""
    changes: int = 0

    def after(self, observation: Observation) -> TrainingIdentity:
        """The identity after an attempt. An unknown digest is no change.

        Example:
            >>> from wattloop_planner.observations import Outcome
            >>> run = Observation(0, 0, 32, Outcome.REACHED, 5.0, 100.0, 10.0, 300.0, image_digest="sha256:a")
            >>> first = TrainingIdentity().after(run)
            >>> first.changes, first.after(replace(run, image_digest="")).changes
            (0, 0)
            >>> first.after(replace(run, image_digest="sha256:b")).changes
            1
        """
        if observation.from_other_job or not (observation.template_digest or observation.image_digest):
            return self
        known = (self.template_digest, self.image_digest)
        seen = (observation.template_digest, observation.image_digest)
        changed = any(one and other and one != other for one, other in zip(known, seen, strict=True))
        template, image = (new or old for new, old in zip(seen, known, strict=True))
        return replace(self, template_digest=template, image_digest=image, changes=self.changes + changed)


@dataclass
class Posterior:
    """Sufficient statistics of the observations in the current regime.

    Attributes:
        maximize: Whether a higher metric is better; None: curves are ignored.
        detects_changes: Whether older runs may belong to another regime.
        runs: Number of runs that reached the target, per arm.
        means: Mean log epochs of these runs.
        bound_values: Values of the Gaussian factors of runs that did not reach the target.
        curve_precisions: Precisions of the predictions from curves in these factors.
        ever_reached: Arms that reached the target in any regime.
        diverged: Arms that diverged in the current regime and have never reached the target.
        ever_run: Arms that ran beyond their first epoch in any regime.
        epoch_costs: Epoch costs by GPU model, independent of the regime.
        changed_at: Recurrence and attempt of the first run of the current regime.
    """

    space: ConfigurationSpace
    eta: float
    maximize: bool | None = None
    detects_changes: bool = True
    runs: Vector = field(init=False)
    means: Vector = field(init=False)
    bound_values: Vector = field(init=False)
    bound_precisions: Vector = field(init=False)
    curve_precisions: Vector = field(init=False)
    ever_reached: Vector = field(init=False)
    ever_run: Vector = field(init=False)
    diverged: Vector = field(init=False)
    epoch_costs: EpochCosts = field(init=False)
    changes: int = 0
    changed_at: tuple[int, int] = (-1, 0)

    def __post_init__(self) -> None:
        arms = len(self.space)
        self.runs, self.means = np.zeros(arms), np.zeros(arms)
        self.bound_values, self.bound_precisions = np.zeros(arms), np.zeros(arms)
        self.curve_precisions = np.zeros(arms)
        self.ever_reached, self.ever_run, self.diverged = np.zeros(arms), np.zeros(arms), np.zeros(arms)
        self._curves = None if self.maximize is None else CurveModel(distances(self.space), self.maximize)
        self._prior_means: Matrix | None = None
        self._prior_covariance = prior_covariance(EPOCHS, self.space)
        self._epochs: tuple[Vector, Matrix, float] | None = None
        self.epoch_costs = EpochCosts(self.space, self.eta)
        self._sum_of_squares = self._degrees_of_freedom = 0.0
        self._upwards = self._downwards = 0.0
        self._training = TrainingIdentity()
        self._before: Posterior | None = None
        self._since: list[Observation] = []

    def update(self, observation: Observation) -> None:
        """Learn from an observation; crashes and arms that are no longer offered are ignored."""
        arm = self.space.index(observation.batch_size, observation.parameters)
        if observation.outcome is Outcome.CRASHED or arm is None:
            return
        self.epoch_costs.update(arm, observation)
        if observation.outcome is Outcome.DIVERGED:
            self._learn_divergence(arm)
            return
        if not observation.gives_epochs:
            return
        self._expect_change_with(self._training.after(observation))
        residual = self._residual(arm, observation)
        if self._before is None and abs(residual) > ALLOWANCE:
            self._before = self._copy()
        if self._before is not None:
            self._since.append(observation)
        self._learn_epochs(arm, observation)
        self._detect_change(residual)

    @property
    def has_epochs(self) -> bool:
        """Whether any attempt gave information about epochs."""
        return self._prior_means is not None

    def epochs(self) -> tuple[Vector, Matrix, float]:
        """Posterior mean and covariance of the log epochs to the target, and the noise between runs."""
        if self._epochs is None:
            noise = self._noise_sd()
            effective_runs = self.runs**2 / (self.runs + HEAVY_TAILS)
            precisions = np.where(self.runs > 0, effective_runs / noise**2, 0.0)
            total = precisions + self.bound_precisions
            weighted = precisions * self.means + self.bound_precisions * self.bound_values
            values = np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)
            assert self._prior_means is not None, "no observation yet"
            mean, covariance = condition_mixture(self._prior_means, self._prior_covariance, values, total)
            self._epochs = mean, covariance, noise
        return self._epochs

    def start_regime(self, difference: SmoothPrior) -> None:
        """Start a regime whose epochs differ from those learned so far by this prior."""
        if self._prior_means is None:
            return
        mean, covariance, _ = self.epochs()
        self._prior_means = mean[None]
        self._prior_covariance = covariance + prior_covariance(difference, self.space)
        for name in PER_REGIME:
            getattr(self, name)[:] = 0
        self._sum_of_squares = self._degrees_of_freedom = 0.0
        self._epochs = None
        if self._curves is not None:
            self._curves.forget_references()

    def _learn_epochs(self, arm: int, observation: Observation) -> None:
        value = log_of(observation.epochs)
        if self._prior_means is None:
            shapes = prior_means(EPOCHS, self.space)
            self._prior_means = shapes + (value - shapes[:, [arm]])
        if observation.epochs > 1 or observation.outcome is Outcome.REACHED:
            self.ever_run[arm] = 1
        if observation.outcome is Outcome.REACHED or observation.easier_target:
            if not observation.easier_target:
                self.ever_reached[arm] = 1
            self.diverged[arm] = 0
            self.runs[arm] += 1
            step = value - float(self.means[arm])
            self.means[arm] += step / self.runs[arm]
            self._sum_of_squares += step * (value - float(self.means[arm]))
            self._degrees_of_freedom += 0.0 if self.runs[arm] == 1 else 1.0
            if self._curves is not None and observation.curve is not None and not observation.easier_target:
                self._curves.learn(arm, observation.curve, observation.epochs)
        else:
            self._learn_bound(arm, value, self._prediction(arm, observation.curve, observation.epochs))
        self._epochs = None

    def _learn_divergence(self, arm: int) -> None:
        """Exclude an arm that diverged, and learn that it takes more epochs than was expected of it.

        Its few epochs say nothing. The bound, one standard deviation above the expectation, lets arms with
        the same value of a parameter seem longer, and leaves arms that have run where they are.
        """
        if not self.ever_reached[arm]:
            self.diverged[arm] = 1
        if self.has_epochs:
            mean, variance, noise = self._epochs_of_arm(arm)
            self._learn_bound(arm, mean + math.sqrt(variance + noise**2))
            self._epochs = None

    def _learn_bound(self, arm: int, bound: float, prediction: CurvePrediction | None = None) -> None:
        """Learn from an attempt that did not reach the target, by matching the moments of the posterior.

        The attempt takes more than these log epochs, and its curve may predict how many. The run may be an
        outlier if it is the arm's only observation.
        """
        mean, variance, noise = self._epochs_of_arm(arm)
        alone = not self.ever_reached[arm] and not self.bound_precisions[arm]
        outlier_probability = OUTLIER_PROBABILITY if alone else 0.0
        prior = AttemptEpochs(mean, variance + noise**2)
        attempt = prior
        if prediction is not None:
            attempt = attempt.with_curve(prediction)
            self.curve_precisions[arm] += 1 / prediction.sd**2
        attempt = attempt.beyond(bound, outlier_probability)
        # The attempt is a noisy observation of its arm: what it does not determine remains uncertain.
        share = variance / prior.variance
        moved = mean + share * (attempt.mean - mean)
        left = variance - share**2 * (prior.variance - attempt.variance)
        left = max(min(left, variance * MAX_VARIANCE_RATIO), variance * 1e-6)
        precision = 1 / left - 1 / variance
        value = (moved / left - mean / variance) / precision
        total = self.bound_precisions[arm] + precision
        self.bound_values[arm] += (value - self.bound_values[arm]) * precision / total
        self.bound_precisions[arm] = total

    def attempt_epochs(self, arm: int, epochs: float, curve: MetricCurve | None) -> AttemptEpochs | None:
        """Log epochs of a running attempt given its curve, but not that it has run so far.

        None without a prediction that is precise enough to end an attempt.
        """
        prediction = self._prediction(arm, curve, epochs)
        if prediction is None or prediction.sd > MAX_STOPPING_SD:
            return None
        means, covariance, noise = self.epochs()
        return AttemptEpochs(float(means[arm]), float(covariance[arm, arm]) + noise**2).with_curve(prediction)

    def _prediction(self, arm: int, curve: MetricCurve | None, epochs: float) -> CurvePrediction | None:
        """What an attempt's curve adds to those of the arm's earlier attempts; None if nothing.

        The curves of an arm deviate from the references in the same way, so the errors of their
        predictions are equal rather than independent: the most precise prediction counts.
        """
        if self._curves is None or curve is None:
            return None
        prediction = self._curves.predict(arm, curve, epochs)
        if prediction is None:
            return None
        added = 1 / prediction.sd**2 - float(self.curve_precisions[arm])
        return CurvePrediction(prediction.log_epochs, added**-0.5) if added > MIN_CURVE_PRECISION else None

    def _epochs_of_arm(self, arm: int) -> tuple[float, float, float]:
        """Mean and variance of an arm's log epochs, and the noise; from its own runs if they suffice."""
        runs = float(self.runs[arm])
        if runs < OWN_RUNS_SUFFICE:
            means, covariance, noise = self.epochs()
            return float(means[arm]), float(covariance[arm, arm]), noise
        noise = self._noise_sd()
        own, bound = runs**2 / (runs + HEAVY_TAILS) / noise**2, float(self.bound_precisions[arm])
        mean = (own * float(self.means[arm]) + bound * float(self.bound_values[arm])) / (own + bound)
        return mean, 1 / (own + bound), noise

    def _noise_sd(self) -> float:
        squares = NOISE_WEIGHT * NOISE_SD**2 + self._sum_of_squares
        return max(math.sqrt(squares / (NOISE_WEIGHT + self._degrees_of_freedom)), MIN_NOISE_SD)

    def _residual(self, arm: int, observation: Observation) -> float:
        """Distance of a run from the arm's mean in standard deviations; 0 if it is no sign of a change."""
        runs = float(self.runs[arm])
        if not runs:
            return 0.0
        spread = self._noise_sd() * math.sqrt(1 + (1 + HEAVY_TAILS / runs) / runs)
        residual = (log_of(observation.epochs) - float(self.means[arm])) / spread
        if observation.outcome is not Outcome.REACHED and not observation.easier_target:
            residual = max(residual, 0.0)
        return min(max(residual, -MAX_RESIDUAL), MAX_RESIDUAL)

    def _expect_change_with(self, training: TrainingIdentity) -> None:
        """After another image or template, less evidence of a change suffices, and the change is assumed there."""
        changed, self._training = training.changes > self._training.changes, training
        head_start = HEAD_START / training.changes if changed else 0.0
        if max(self._upwards, self._downwards) < head_start:
            self._before, self._since = self._copy(), []
        self._upwards, self._downwards = max(self._upwards, head_start), max(self._downwards, head_start)

    def _detect_change(self, residual: float) -> None:
        self._upwards = max(0.0, self._upwards + residual - ALLOWANCE)
        self._downwards = max(0.0, self._downwards - residual - ALLOWANCE)
        is_change = self.detects_changes and max(self._upwards, self._downwards) >= THRESHOLD
        if is_change and self._before is not None:
            self._change_regime(self._before, self._since)
        elif self._upwards == self._downwards == 0:
            self._before, self._since = None, []

    def _change_regime(self, before: Posterior, since: list[Observation]) -> None:
        """Restore the state before the deviating runs, start a regime there, and relearn these runs."""
        epoch_costs, changes, training = self.epoch_costs, self.changes + 1, replace(self._training, changes=0)
        ever_reached, ever_run = self.ever_reached, self.ever_run
        self.__dict__.update(before._copy().__dict__)
        self.epoch_costs, self.changes, self._training = epoch_costs, changes, training
        self.start_regime(CHANGED_REGIME)
        self._upwards = self._downwards = 0.0
        self._before, self._since = None, []
        self.changed_at = since[0].recurrence, since[0].attempt
        for observation in since:
            self._learn_epochs(self.space.arm(observation.batch_size, observation.parameters), observation)
        self.ever_reached, self.ever_run = ever_reached, ever_run

    def _copy(self) -> Posterior:
        clone = copy.copy(self)
        for name in (*PER_REGIME, "ever_reached", "ever_run"):
            setattr(clone, name, getattr(self, name).copy())
        clone._before, clone._since = None, []
        if self._curves is not None:
            clone._curves = self._curves.copy()
        return clone
