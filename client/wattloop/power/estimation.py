"""Energy and time per sample at each power limit, with their uncertainty, from repeated windows.

The logarithm of a window's energy per sample, and of its time per sample, is a sum of

- the value of its power limit, at the temperature that the GPU settles at if the limit stays;
- the effects of temperature and drift (`wattloop.power.windows`), separately for a GPU that its limit
  slows and for one that it does not: because it draws less, or more at its lowest clock;
- noise.

All but the noise have normal priors, so the posterior is that of Bayesian linear regression (Bishop,
Pattern Recognition and Machine Learning, section 3.3). What the model is not linear in (the time
constant of the temperature, the power without leakage, the noise, the smoothness) is averaged over a
grid by its evidence (section 3.5). In mode Measured the values of the limits are independent; in mode
Fitted they are close to a smooth curve, a Gaussian process of the throttling, so that limits between
measured ones are known too.
"""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from wattloop.power.linear_algebra import Matrix, cholesky, forward_solve, inverse, log_determinant, times
from wattloop.power.selectors import MeasuredLimit
from wattloop.power.windows import MIN_WINDOW_SECONDS, PowerWindow, ThermalState, thermal_states

TIME_CONSTANTS_SECONDS = (20.0, 80.0)
# Power that does not depend on the clock, as a share of the lowest measured power.
STATIC_SHARES = (0.0, 0.5, 0.85)
# Relative noise of a window of MIN_WINDOW_SECONDS, with prior weights: counters advance in steps, and batches differ.
NOISE = {0.003: 0.2, 0.008: 0.4, 0.02: 0.3, 0.05: 0.1}
# Wide: a narrower one would explain a part of the differences between limits, which are large, by heat.
LEVEL_DEVIATION = 20.0
# Leakage is up to about a sixth of a hot GPU's power; a workload drifts less.
HEAT_DEVIATION = 0.1
DRIFT_DEVIATION = 0.05
# The share of its limit that a GPU draws if the limit slows it. It draws more if it has its lowest clock.
THROTTLED_SHARES = (0.97, 1.04)
# Of the corrections for heat and drift, as a share: one time constant and effects in proportion are a rough model.
CORRECTION_DEVIATION = 0.4
NEGLIGIBLE_WEIGHT = 1e-3
STATES = 5
NORMAL_95 = 1.96


# How the values of the limits hang together in mode Fitted, in logarithms: deviation of the curve from a straight line,
# and deviations of a limit from the curve.
BEND_DEVIATION = 0.25
MISFITS = (0.01, 0.04, 0.16)
BEND_LENGTH = 0.45
SLOPE_DEVIATION = 1.0
# The limit begins to slow a GPU a little below its mean power, because its power varies within a step.
KNEE_SHARPNESS = 12.0


@dataclass(frozen=True)
class ProfileEstimate:
    """Joint normal distribution of the logarithms of energy and time per sample at each limit.

    Attributes:
        log_energy: Means, in log joules per sample of all GPUs.
        log_time: Means, in log seconds per sample.
        energy_covariance: Covariance of `log_energy`.
        time_covariance: Covariance of `log_time`.
    """

    limits_watts: tuple[float, ...]
    gpus: int
    log_energy: list[float]
    log_time: list[float]
    energy_covariance: Matrix
    time_covariance: Matrix

    def measurements(self) -> list[MeasuredLimit]:
        """The most probable energy and time of one sample at each limit."""
        return self._measurements(self.log_energy, self.log_time)

    def energy_interval(self, index: int) -> tuple[float, float]:
        """Energy per sample at a limit: the interval that contains it with a probability of 95 %."""
        return _interval(self.log_energy[index], self.energy_covariance[index][index])

    def time_interval(self, index: int) -> tuple[float, float]:
        """Time per sample at a limit: the interval that contains it with a probability of 95 %."""
        return _interval(self.log_time[index], self.time_covariance[index][index])

    def draws(self, count: int, seed: int) -> Iterator[list[MeasuredLimit]]:
        """Random profiles of this distribution.

        Errors of energy and time count as fully correlated, the worst case for their sum.
        """
        generator = random.Random(seed)  # noqa: S311 - not for security
        energy_factor, time_factor = cholesky(self.energy_covariance), cholesky(self.time_covariance)
        for _ in range(count):
            normal = [generator.gauss(0.0, 1.0) for _ in self.limits_watts]
            yield self._measurements(
                [mean + add for mean, add in zip(self.log_energy, times(energy_factor, normal), strict=True)],
                [mean + add for mean, add in zip(self.log_time, times(time_factor, normal), strict=True)],
            )

    def _measurements(self, log_energy: Sequence[float], log_time: Sequence[float]) -> list[MeasuredLimit]:
        return [
            MeasuredLimit(limit, math.exp(energy), math.exp(time), self.gpus)
            for limit, energy, time in zip(self.limits_watts, log_energy, log_time, strict=True)
        ]


def estimate_profile(
    limits_watts: Sequence[float], windows: Sequence[PowerWindow], gpus: int, *, fitted: bool
) -> ProfileEstimate:
    """The distribution of energy and time per sample at each limit, after these windows.

    Args:
        limits_watts: The limits; those without a window are known in mode Fitted only.
        windows: In order of time; at least one, each at one of the limits.
        gpus: Number of GPUs whose energy the windows have.
        fitted: Whether the values of the limits are close to a smooth curve.
    """
    limits = tuple(limits_watts)
    size = range(len(limits))
    independent = [[LEVEL_DEVIATION**-2 * (row == column) for column in size] for row in size]
    priors = _smooth_priors(limits, windows, gpus) if fitted else [_with_states(independent)]
    outputs = (
        [math.log(window.energy_joules / window.samples) for window in windows],
        [math.log(window.time_seconds / window.samples) for window in windows],
    )
    designs = [
        _Design(limits, windows, gpus, constant, share)
        for constant, share in itertools.product(TIME_CONSTANTS_SECONDS, STATIC_SHARES)
    ]
    determinants = [log_determinant(cholesky(prior)) for prior in priors]
    precisions = [
        [
            _Precision(design, prior, determinant, noise=noise, probability=probability)
            for prior, determinant in zip(priors, determinants, strict=True)
            for noise, probability in NOISE.items()
        ]
        for design in designs
    ]
    energy, time = (_Posterior(designs, precisions, output) for output in outputs)
    together = [one + other for one, other in zip(energy.log_evidence, time.log_evidence, strict=True)]
    best = max(together)
    weights = [math.exp(value - best) for value in together]
    log_energy, energy_covariance = energy.moments(weights)
    log_time, time_covariance = time.moments(weights)
    _widen(energy_covariance, _corrections(limits, windows, outputs[0], log_energy))
    _widen(time_covariance, _corrections(limits, windows, outputs[1], log_time))
    return ProfileEstimate(limits, gpus, log_energy, log_time, energy_covariance, time_covariance)


def _corrections(
    limits: Sequence[float], windows: Sequence[PowerWindow], output: Sequence[float], estimate: Sequence[float]
) -> list[float]:
    """How much the estimate of each limit differs from the mean of its windows, because of heat and drift.

    A limit without windows (mode Fitted) has the correction of the nearest one that has some.
    """
    seconds, sums = dict.fromkeys(limits, 0.0), dict.fromkeys(limits, 0.0)
    for window, value in zip(windows, output, strict=True):
        seconds[window.power_limit_watts] += window.time_seconds
        sums[window.power_limit_watts] += window.time_seconds * value
    measured = [limit for limit in limits if seconds[limit]]
    means = {limit: sums[limit] / seconds[limit] for limit in measured}
    own = {limit: value - means[limit] for limit, value in zip(limits, estimate, strict=True) if limit in means}
    return [own[min(measured, key=lambda each: abs(each - limit))] for limit in limits]


def _widen(covariance: Matrix, corrections: Sequence[float]) -> None:
    """Add the doubt about the model of heat: all corrections are too large or too small by the same share."""
    for row, one in enumerate(corrections):
        for column, other in enumerate(corrections):
            covariance[row][column] += CORRECTION_DEVIATION**2 * one * other


class _Design:
    """The rows of the regression for one model of heat: index of the limit, and the other effects."""

    def __init__(
        self,
        limits: Sequence[float],
        windows: Sequence[PowerWindow],
        gpus: int,
        time_constant_seconds: float,
        static_share: float,
    ) -> None:
        self.size = len(limits) + STATES
        states = thermal_states(windows, time_constant_seconds)
        highest = max(state.power_watts for state in states)
        static = static_share * min(state.power_watts for state in states)
        self.rows = [
            (limits.index(window.power_limit_watts), _effects(window, state, gpus, highest, static))
            for window, state in zip(windows, states, strict=True)
        ]
        self.weights = [window.time_seconds / MIN_WINDOW_SECONDS for window in windows]
        self.gram = self._gram()

    def _gram(self) -> Matrix:
        gram = [[0.0] * self.size for _ in range(self.size)]
        first = self.size - STATES
        for (index, effects), weight in zip(self.rows, self.weights, strict=True):
            gram[index][index] += weight
            for row, one in enumerate(effects, first):
                if one:
                    weighted = weight * one
                    gram[row][index] += weighted
                    gram[index][row] += weighted
                    for column, other in enumerate(effects, first):
                        gram[row][column] += weighted * other
        return gram

    def moment(self, output: Sequence[float]) -> list[float]:
        """Sum of the rows, each times its output."""
        moment = [0.0] * self.size
        for (index, effects), weight, value in zip(self.rows, self.weights, output, strict=True):
            moment[index] += weight * value
            for column, effect in enumerate(effects, self.size - STATES):
                moment[column] += weight * effect * value
        return moment


def _effects(
    window: PowerWindow, state: ThermalState, gpus: int, highest_watts: float, static_watts: float
) -> tuple[float, ...]:
    """Relative effects of leakage of the same size: on all power, or on the power that is left for the clock."""
    share = window.energy_joules / window.time_seconds / (window.power_limit_watts * gpus)
    throttled = THROTTLED_SHARES[0] <= share <= THROTTLED_SHARES[1]
    watts = state.power_watts - static_watts if throttled else state.power_watts
    heat = (state.excess_watts / watts, state.start * highest_watts / watts)
    return (*heat, 0.0, 0.0, state.elapsed) if throttled else (0.0, 0.0, *heat, state.elapsed)


class _Precision:
    """The precision of the posterior for one design, prior and noise, which is the same for every output."""

    def __init__(
        self, design: _Design, prior: Matrix, prior_log_determinant: float, *, noise: float, probability: float
    ) -> None:
        self.limits = design.size - STATES
        self.scale = noise**-2
        precision = [
            [self.scale * gram + add for gram, add in zip(row, addend, strict=True)]
            for row, addend in zip(design.gram, prior, strict=True)
        ]
        self.factor = cholesky(precision)
        self.log_determinants = prior_log_determinant - log_determinant(self.factor)
        self.log_prior = math.log(probability)
        self.log_noise = len(design.rows) * math.log(noise)

    @cached_property
    def covariance(self) -> Matrix:
        """Of the values of the limits and the other effects."""
        return inverse(self.factor)


class _Posterior:
    """The posterior of one output, averaged over noise and prior, for each design."""

    def __init__(
        self, designs: Sequence[_Design], precisions: Sequence[Sequence[_Precision]], output: Sequence[float]
    ) -> None:
        self._center = sum(output) / len(output)
        centered = [value - self._center for value in output]
        self._parts: list[list[_Regression]] = []
        for design, of_design in zip(designs, precisions, strict=True):
            moment = design.moment(centered)
            square = sum(weight * value * value for weight, value in zip(design.weights, centered, strict=True))
            self._parts.append([_Regression(precision, moment, square) for precision in of_design])
        # One per design.
        self.log_evidence = [_log_sum(part.log_evidence for part in parts) for parts in self._parts]

    def moments(self, weights: Sequence[float]) -> tuple[list[float], Matrix]:
        """Mean and covariance of the values of the limits, over all parts of the mixture."""
        chosen: list[tuple[float, list[float], Matrix]] = []
        for weight, parts, total in zip(weights, self._parts, self.log_evidence, strict=True):
            for part in parts:
                share = weight * math.exp(part.log_evidence - total)
                if share > NEGLIGIBLE_WEIGHT * max(weights):
                    chosen.append((share, *part.moments()))
        whole = sum(share for share, _, _ in chosen)
        size = range(len(chosen[0][1]))
        mean = [sum(share * means[row] for share, means, _ in chosen) / whole for row in size]
        covariance = [[0.0] * len(size) for _ in size]
        for row in size:
            for column in range(row + 1):
                covariance[row][column] = covariance[column][row] = (
                    sum(
                        share * (matrix[row][column] + (means[row] - mean[row]) * (means[column] - mean[column]))
                        for share, means, matrix in chosen
                    )
                    / whole
                )
        return [value + self._center for value in mean], covariance


class _Regression:
    """Bayesian linear regression of one output with a given prior precision and noise."""

    def __init__(self, precision: _Precision, moment: Sequence[float], square: float) -> None:
        self._precision = precision
        self._scaled = [precision.scale * value for value in moment]
        half = forward_solve(precision.factor, self._scaled)
        residual = precision.scale * square - sum(value * value for value in half)
        self.log_evidence = precision.log_prior + (precision.log_determinants - residual) / 2 - precision.log_noise

    def moments(self) -> tuple[list[float], Matrix]:
        """Mean and covariance of the values of the limits."""
        covariance, limits = self._precision.covariance, self._precision.limits
        mean = times(covariance, self._scaled)
        return mean[:limits], [row[:limits] for row in covariance[:limits]]


def _smooth_priors(limits: Sequence[float], windows: Sequence[PowerWindow], gpus: int) -> list[Matrix]:
    """Prior precisions in mode Fitted: Gaussian processes of the throttling of each limit."""
    top = [window for window in windows if window.power_limit_watts == max(each.power_limit_watts for each in windows)]
    demand = sum(each.energy_joules for each in top) / sum(each.time_seconds for each in top) / gpus
    # Logarithm of the demanded power over the allowed one: 0 far above the demand, with a soft knee.
    throttling = [math.log1p((demand / limit) ** KNEE_SHARPNESS) / KNEE_SHARPNESS for limit in limits]
    return [_with_states(inverse(cholesky(_covariance(throttling, misfit)))) for misfit in MISFITS]


def _covariance(throttling: Sequence[float], misfit: float) -> Matrix:
    def entry(one: float, other: float) -> float:
        bend = BEND_DEVIATION**2 * math.exp(-(((one - other) / BEND_LENGTH) ** 2) / 2)
        return LEVEL_DEVIATION**2 + SLOPE_DEVIATION**2 * one * other + bend

    return [
        [entry(one, other) + misfit**2 * (row == column) for column, other in enumerate(throttling)]
        for row, one in enumerate(throttling)
    ]


def _with_states(precision: Matrix) -> Matrix:
    """The precision with the rows of the thermal effects."""
    size = len(precision)
    deviations = [HEAT_DEVIATION] * (STATES - 1) + [DRIFT_DEVIATION]
    added = [
        [0.0] * size + [deviations[row] ** -2 * (row == column) for column in range(STATES)] for row in range(STATES)
    ]
    return [row + [0.0] * STATES for row in precision] + added


def _interval(mean: float, variance: float) -> tuple[float, float]:
    half = NORMAL_95 * math.sqrt(variance)
    return math.exp(mean - half), math.exp(mean + half)


def _log_sum(values: Iterator[float]) -> float:
    known = list(values)
    highest = max(known)
    return highest + math.log(sum(math.exp(value - highest) for value in known))
