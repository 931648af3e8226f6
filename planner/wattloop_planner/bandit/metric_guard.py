"""The metric guard: which arms end with a worse metric than the default arm, beyond a margin.

The default is compared with another arm by Student's one-sided t test of two means with the pooled
spread, over the latest `WINDOW` runs of each: first when both have enough runs, then each time that
their number has grown by a quarter. The level of the k-th comparison is ERROR_RATE/(k(k+1)). These
levels add up to ERROR_RATE, so by the union bound an arm whose true mean is within the margin is ever
found to fall short with at most this probability, if metrics are normal with one spread.

A verdict is final: it does not depend on later runs.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import Generic, TypeVar

ArmKey = TypeVar("ArmKey", bound=Hashable)

MIN_DEFAULT_RUNS = 2
MIN_RUNS = 3
WINDOW = 10
ERROR_RATE = 0.05
# Growth of the number of runs between two comparisons.
GROWTH = 1.25
# Relative tolerance of a comparison of means without spread.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Shortfall:
    """The comparison in which an arm fell short of the default.

    Attributes:
        mean: Mean metric of the arm's latest runs.
        runs: Number of runs of the arm in the comparison.
    """

    mean: float
    default_mean: float
    runs: int
    default_runs: int


@dataclass
class _Metrics:
    """The final metrics of one arm: the latest ones, and the number of all; its comparisons with the default."""

    latest: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    count: int = 0
    comparisons: int = 0
    next_comparison: float = MIN_RUNS + MIN_DEFAULT_RUNS

    def add(self, metric: float) -> None:
        self.latest.append(metric)
        self.count += 1


@dataclass(frozen=True)
class GuardResult(Generic[ArmKey]):
    """What is known of the final metrics.

    Attributes:
        short: The arms that fell short of the default, with the comparison that showed it.
        suspected: Other arms whose latest mean is worse by more than the margin, which may be chance.
        runs: Number of runs of each other arm that ran.
    """

    short: dict[ArmKey, Shortfall]
    suspected: frozenset[ArmKey]
    runs: dict[ArmKey, int]
    default_runs: int

    @property
    def comparable(self) -> frozenset[ArmKey]:
        """The arms with enough runs to be compared with the default."""
        return frozenset(arm for arm, runs in self.runs.items() if runs >= MIN_RUNS)


def guard_result(
    finals: Iterable[tuple[ArmKey, float]], default: ArmKey, *, margin: float, maximize: bool
) -> GuardResult[ArmKey]:
    """Compare the final metrics of every arm with those of the default.

    Args:
        finals: Arm and final metric of each run that reached the target, in order.
        default: The default arm, which never falls short.
        margin: By how much the mean metric may be worse than the default's; 0 or more.
        maximize: Whether higher metrics are better.

    Example:
        >>> runs = [("a", 95.0), ("a", 96.0), ("b", 90.0), ("b", 91.0), ("b", 90.5)]
        >>> guard_result(runs, "a", margin=1.0, maximize=True).short
        {'b': Shortfall(mean=90.5, default_mean=95.5, runs=3, default_runs=2)}
    """
    by_arm: dict[ArmKey, _Metrics] = {default: _Metrics()}
    short: dict[ArmKey, Shortfall] = {}
    for arm, metric in finals:
        by_arm.setdefault(arm, _Metrics()).add(metric)
        compared = [each for each in by_arm if each != default] if arm == default else [arm]
        for other in compared:
            if other not in short and _falls_short(by_arm[other], by_arm[default], margin, maximize=maximize):
                latest, base = by_arm[other].latest, by_arm[default].latest
                short[other] = Shortfall(fmean(latest), fmean(base), len(latest), len(base))
    own = by_arm.pop(default)
    suspected = frozenset(
        arm
        for arm, metrics in by_arm.items()
        if arm not in short and metrics.count >= MIN_RUNS and own.count and _excess(metrics, own, margin, maximize) > 0
    )
    return GuardResult(short, suspected, {arm: metrics.count for arm, metrics in by_arm.items()}, own.count)


def _falls_short(arm: _Metrics, default: _Metrics, margin: float, *, maximize: bool) -> bool:
    """Whether a comparison is due and shows that an arm's mean is worse by more than the margin."""
    runs = arm.count + default.count
    if arm.count < MIN_RUNS or default.count < MIN_DEFAULT_RUNS or runs < arm.next_comparison:
        return False
    arm.comparisons += 1
    arm.next_comparison = GROWTH * runs
    excess = _excess(arm, default, margin, maximize)
    if excess <= 0:
        return False
    mean, default_mean = fmean(arm.latest), fmean(default.latest)
    squares = sum((each - mean) ** 2 for each in arm.latest)
    squares += sum((each - default_mean) ** 2 for each in default.latest)
    freedom = len(arm.latest) + len(default.latest) - 2
    error = math.sqrt(squares / freedom * (1 / len(arm.latest) + 1 / len(default.latest)))
    return excess > _critical_value(freedom, arm.comparisons) * error


def _excess(arm: _Metrics, default: _Metrics, margin: float, maximize: bool) -> float:
    """By how much the latest mean of an arm is worse than the margin allows; 0 if it is no more than rounding."""
    mean, default_mean = fmean(arm.latest), fmean(default.latest)
    excess = (default_mean - mean if maximize else mean - default_mean) - margin
    return excess if excess > ROUNDING * max(abs(mean), abs(default_mean), margin) else 0.0


@lru_cache(maxsize=4096)
def _critical_value(freedom: int, comparison: int) -> float:
    """Quantile of Student's t distribution for the level of the comparison of this number, from 1."""
    from scipy.special import stdtrit  # noqa: PLC0415 - an operator without a guard needs no SciPy

    return float(-stdtrit(freedom, ERROR_RATE / (comparison * (comparison + 1))))
