"""What the next start-up of each arm costs, by several explanations of the known ones.

All starts share a level that drifts and may have a trend, and vary. Besides, some starts may have been cold: the first
on each node, where nothing was cached yet. A cold start says nothing of its arm, and nothing of the next start. Or some
arms may be slow (they compile, or read other data), or each arm may have an own part. Every combination is a Gaussian
model. Its likelihood and its prior give it a weight.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from wattloop_planner.bandit.gaussian_process import Flags, Indices, Matrix, Vector
from wattloop_planner.bandit.noise_scale import NO_SPREAD, Spread

# Change of the shared level between two attempts: drift, in standard deviations of one arm's starts, and standard
# deviation of the trend (the data grow), as a part of the largest start.
DRIFT, TREND = 0.3, 0.02
# Standard deviations of the parts of a start, and the least one between the starts of an arm; all as parts of the
# largest start.
OWN_PART, SLOW_PART, COLD_PART, MIN_SPREAD = 0.5, 1.0, 1.0, 0.01
# Prior odds of arms with own parts, of slow arms and of cold starts, against none.
OWN_ODDS, SLOW_ODDS, COLD_ODDS = 0.2, 0.2, 1.0
# Prior probability that all attempts run on one node, and that the first attempt known was not the first one.
ONE_NODE, NOT_FIRST = 0.5, 0.01
# Starts are divided at the widest gaps between their costs.
MAX_GAPS = 3
# Starts below this cost nothing.
MIN_JOULES = 1e-6
# Standard deviation between the starts of a job, as a part of their median, and its weight in attempts.
PRIOR_SPREAD = 0.1
PRIOR_WEIGHT = 4.0
# What the division of an attempt of n epochs into its start and its epochs is wrong by, before any was repeated: this
# part of an epoch. And the standard deviation of what an attempt costs.
DIVISION_ERROR, RUN_SD = 0.5, 0.1
# Where the parts vary more than this times as much as the whole, in variances, the division is noise.
MAX_PARTS_RATIO = 2.0
# Where it is noise, the most of the least expensive attempt that the start is taken to be.
MAX_UNDIVIDED_SHARE = 0.5


@dataclass(frozen=True)
class KnownStart:
    """What the start of an attempt cost.

    Attributes:
        index: Its index among all known starts of the job on this GPU model, from 0.
        epochs: Epochs that the attempt ran; 0 if the cost of an epoch was not measured.
    """

    index: int
    arm: int
    joules: float
    epochs: float = 0.0
    epochs_joules: float = 0.0


@dataclass(frozen=True)
class ExpectedStartUps:
    """What the next start of each arm costs.

    Attributes:
        typical: The likely cost in joules, at least 0, shape (arms,): its median over the explanations.
        spread: Standard deviation between the starts of one arm, in joules.
        risk: Expected cost beyond the typical one, in joules, at least 0, shape (arms,). The next start of an arm shows
            which explanation holds, so this is paid once.
        variation: How much the logs of starts vary between those of an arm.
        is_division_noise: Whether the measured starts say nothing of a single attempt: see `is_division_noise`.
    """

    typical: Vector
    spread: float
    risk: Vector
    variation: Spread = NO_SPREAD
    is_division_noise: bool = False


def expected_start_ups(known: Sequence[KnownStart], arms: int) -> ExpectedStartUps:
    """What the next starts cost; nothing if none is known.

    Example:
        >>> known = [KnownStart(index, 0, joules) for index, joules in enumerate([900.0, 100.0, 100.0])]
        >>> expected_start_ups(known, arms=2).typical.round().tolist()
        [100.0, 100.0]
    """
    scale = max((each.joules for each in known), default=0.0)
    if scale < MIN_JOULES:
        return ExpectedStartUps(np.zeros(arms), 0.0, np.zeros(arms))
    if is_division_noise(known):
        least = min(each.joules + each.epochs_joules for each in known if each.epochs)
        same = min(float(np.median([each.joules for each in known])), MAX_UNDIVIDED_SHARE * least)
        return ExpectedStartUps(np.full(arms, same), 0.0, np.zeros(arms), is_division_noise=True)
    # Here, because jobs whose starts are not known need no SciPy.
    from scipy.special import softmax  # noqa: PLC0415

    starts = _Starts(
        np.array([each.index for each in known]),
        np.array([each.arm for each in known]),
        np.array([each.joules / scale for each in known]),
        arms,
    )
    found = [
        _predicted(starts, is_cold, arm_parts, cold_odds + arm_odds)
        for is_cold, cold_odds in _cold_starts(starts)
        for arm_parts, arm_odds in _arm_parts(starts, ~is_cold)
    ]
    weights: Vector = softmax(np.array([each.log_weight for each in found]))
    means: Matrix = scale * np.maximum(np.array([each.mean for each in found]), 0.0)
    spread = scale * float(np.array([each.spread for each in found]) @ weights)
    squares, freedom = (weights @ np.array([each.variation for each in found])).tolist()
    typical = _weighted_medians(means, weights)
    risk = np.maximum(weights @ means - typical, 0.0)
    return ExpectedStartUps(typical, spread, risk, Spread(squares, freedom))


def is_division_noise(known: Sequence[KnownStart]) -> bool:
    """Whether the division of attempts into their starts and their epochs is mostly an error of the measurement.

    The epochs after the first one show the cost of an epoch, and the rest is the start. With two or three epochs, one
    slow epoch moves that cost from one part to the other: the parts vary between the runs of an arm, and the whole does
    not. Starts and epochs that do vary, each for itself, vary the whole by as much.

    Args:
        known: Known starts. Those without the cost of an epoch say nothing.

    Example:
        >>> runs = [(3280.0, 210.0), (820.0, 2676.0), (2500.0, 990.0)]
        >>> is_division_noise([KnownStart(i, 0, start, 3.0, rest) for i, (start, rest) in enumerate(runs)])
        True
    """
    divided: dict[int, list[KnownStart]] = {}
    for each in known:
        if each.epochs and each.joules + each.epochs_joules > 0:
            divided.setdefault(each.arm, []).append(each)
    if not divided:
        return False
    attempts = [each for of_arm in divided.values() for each in of_arm]
    error = fmean((DIVISION_ERROR / each.epochs) ** 2 for each in attempts)
    # Starts that differ by more than such errors do vary, also if no arm was repeated.
    scale = fmean(each.joules + each.epochs_joules for each in attempts) ** 2
    varies = max(_squares([each.joules for each in attempts]) / len(attempts) / scale - 4 * error, 0.0)
    parts, whole = 2 * error + RUN_SD**2 + varies, RUN_SD**2 + varies
    for of_arm in divided.values():
        starts, epochs = [each.joules for each in of_arm], [each.epochs_joules for each in of_arm]
        totals = [start + rest for start, rest in zip(starts, epochs, strict=True)]
        scale = fmean(totals) ** 2
        parts += (_squares(starts) + _squares(epochs)) / scale
        whole += _squares(totals) / scale
    return parts > MAX_PARTS_RATIO * whole


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((each - middle) ** 2 for each in values)


@dataclass(frozen=True)
class _Starts:
    """Known starts: their indices, arms, and costs as parts of the largest; and the number of all arms."""

    indices: Indices
    ran: Indices
    costs: Vector
    arms: int


@dataclass(frozen=True)
class _ArmParts:
    """What makes the starts of arms differ: the standard deviation of own parts, or the arms that are slow."""

    own_sd: float
    is_slow: Flags


@dataclass(frozen=True)
class _Prediction:
    """Expected next start of each arm, spread, squares and number of relative differences, and log weight."""

    mean: Vector
    spread: float
    variation: tuple[float, int]
    log_weight: float


def _cold_starts(starts: _Starts) -> Iterator[tuple[Flags, float]]:
    """Which starts may have been cold, with the log prior odds: none, or those above a gap.

    The next attempt runs on a node that is new to the job with probability 1 / (1 + attempts so far), as in a
    Chinese restaurant process of concentration 1, unless the job has one node only.
    """
    yield np.zeros(len(starts.costs), dtype=np.bool_), 0.0
    new = np.minimum(1 / (1 + starts.indices), 1 - NOT_FIRST)
    for is_cold in _above_gaps(starts.costs):
        chance = (1 - ONE_NODE) * float(np.where(is_cold, new, 1 - new).prod())
        if not is_cold[starts.indices > 0].any():
            chance += ONE_NODE * (1 - NOT_FIRST)
        yield is_cold, math.log(COLD_ODDS * chance)


def _arm_parts(starts: _Starts, warm: Flags) -> Iterator[tuple[_ArmParts, float]]:
    """What may make the starts of arms differ, with the log prior odds."""
    from scipy.special import betaln  # noqa: PLC0415 - as above

    none = np.zeros(starts.arms, dtype=np.bool_)
    yield _ArmParts(0.0, none), 0.0
    yield _ArmParts(OWN_PART, none), math.log(OWN_ODDS)
    ran = np.unique(starts.ran[warm])
    least = np.array([starts.costs[warm & (starts.ran == arm)].min() for arm in ran])
    for is_slow in _above_gaps(least):
        flags = none.copy()
        flags[ran[is_slow]] = True
        slow = int(is_slow.sum())
        # The part of the arms that are slow is uniform a priori.
        yield _ArmParts(0.0, flags), math.log(SLOW_ODDS) + float(betaln(slow + 1, len(ran) - slow + 1))


def _above_gaps(values: Vector) -> Iterator[Flags]:
    """Which values are above a gap between two of them, for each of the widest gaps."""
    levels = np.sort(values)
    gaps = np.diff(levels)
    for gap in np.argsort(-gaps, kind="stable")[:MAX_GAPS]:
        if gaps[gap] > MIN_SPREAD:
            yield values > levels[gap]


def _predicted(starts: _Starts, is_cold: Flags, parts: _ArmParts, log_odds: float) -> _Prediction:
    from scipy.linalg import cho_factor, cho_solve  # noqa: PLC0415 - as above

    indices, ran, costs = starts.indices, starts.ran, starts.costs
    slow = parts.is_slow[ran]
    plain = ~(slow | is_cold)
    sds = np.empty(len(costs))
    for group in (plain, slow & ~is_cold, is_cold):
        if group.any():
            apart = _differences(ran[group], costs[group])
            squares = PRIOR_WEIGHT * (PRIOR_SPREAD * float(np.median(costs[group]))) ** 2 + math.fsum(apart)
            sds[group] = max(math.sqrt(squares / (PRIOR_WEIGHT + len(apart))), MIN_SPREAD)
    spread = float(sds[plain][0])
    drift, left = (DRIFT * spread) ** 2, indices[-1] + 1 - indices
    covariance = 1 + drift * np.minimum(indices[:, None], indices) + parts.own_sd**2 * (ran[:, None] == ran)
    covariance += TREND**2 * np.outer(left, left)
    covariance += SLOW_PART**2 * (slow[:, None] & slow) + COLD_PART**2 * (is_cold[:, None] & is_cold)
    factor = cho_factor(covariance + np.diag(sds**2), lower=True)
    middle = float(np.median(costs[plain]))
    solved = cho_solve(factor, costs - middle)
    likelihood = -0.5 * float((costs - middle) @ solved) - float(np.log(factor[0].diagonal()).sum())
    with_known = 1 + drift * indices + parts.own_sd**2 * (np.arange(starts.arms)[:, None] == ran)
    with_known += SLOW_PART**2 * _slow_chances(parts.is_slow, ran)[:, None] * slow
    differences = _differences(ran[plain], costs[plain])
    variation = math.fsum(differences) / max(middle, MIN_SPREAD) ** 2, len(differences)
    return _Prediction(middle + with_known @ solved, spread, variation, likelihood + log_odds)


def _slow_chances(is_slow: Flags, ran: Indices) -> Vector:
    """Probability that an arm is slow: 0 or 1 if it ran."""
    chances = is_slow.astype(np.float64)
    tried = np.unique(ran)
    if is_slow.any():
        untried = np.setdiff1d(np.arange(len(is_slow)), tried)
        chances[untried] = (is_slow.sum() + 1) / (len(tried) + 2)
    return chances


def _differences(ran: Indices, costs: Vector) -> list[float]:
    """Half of the squared difference of each start to the one of the same arm before: a variance."""
    latest: dict[int, float] = {}
    differences: list[float] = []
    for arm, cost in zip(ran.tolist(), costs.tolist(), strict=True):
        if arm in latest:
            differences.append((cost - latest[arm]) ** 2 / 2)
        latest[arm] = cost
    return differences


def _weighted_medians(values: Matrix, weights: Vector) -> Vector:
    """Median of each column of values, of which each row has a weight; the weights sum to 1."""
    order = values.argsort(axis=0, kind="stable")
    below = weights[order].cumsum(axis=0)
    rows = (below < 0.5 - MIN_SPREAD**2).sum(axis=0)
    medians: Vector = np.take_along_axis(values, order, axis=0)[rows, np.arange(values.shape[1])]
    return medians
