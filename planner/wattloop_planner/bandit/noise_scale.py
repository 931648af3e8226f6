"""How much the log of a quantity varies between runs, learned from the runs themselves.

Trainings differ: the runs of one cost the same within 2 %, those of another, which take seconds on a shared machine,
differ by 40 %. So the standard deviation is unknown within two orders of magnitude, and its posterior is computed on a
grid. With an inverse-gamma prior, which has a closed form, a few equal runs would hardly narrow an interval: such a
prior excludes small standard deviations (Gelman 2006, "Prior distributions for variance parameters").
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from wattloop_planner.bandit.policy import NINETY_PERCENT

# Prior of the standard deviation: log-normal around this, with this standard deviation of its log.
TYPICAL_SD, LOG_SD = 0.15, 1.0
GRID = tuple(0.005 * 200 ** (index / 15) for index in range(16))
# Of each end of the central 90 % interval.
TAIL = 0.05
BISECTIONS = 16


@dataclass(frozen=True)
class Spread:
    """The spread of a logarithm between runs of one configuration, pooled over configurations.

    Attributes:
        squares: Sum of the squared deviations from the mean of each configuration.
        degrees_of_freedom: Number of runs less the number of configurations that ran.
    """

    squares: float = 0.0
    degrees_of_freedom: float = 0


NO_SPREAD = Spread()


@dataclass(frozen=True)
class NoiseScale:
    """Posterior of the standard deviation of a log between runs.

    Attributes:
        weights: Probability of each standard deviation of `GRID`.
    """

    weights: tuple[float, ...]

    def half_width(self, share: float, known_variance: float = 0.0) -> float:
        """Half of the central 90 % interval of a log with the variance share·sd² + known_variance.

        Example:
            >>> several = noise_scale(Spread(0.0036, 9))
            >>> one = noise_scale(Spread())
            >>> round(several.half_width(1 + 1 / 10), 3), round(one.half_width(1 + 1 / 1), 3)
            (0.044, 0.608)
        """
        if not share + known_variance:
            return 0.0
        sds = [math.sqrt(share * sd**2 + known_variance) for sd in GRID]
        low, high = NINETY_PERCENT * sds[0], NINETY_PERCENT * sds[-1]
        for _ in range(BISECTIONS):
            middle = math.sqrt(low * high)
            beyond = sum(
                weight * math.erfc(middle / sd * math.sqrt(0.5)) for weight, sd in zip(self.weights, sds, strict=True)
            )
            low, high = (middle, high) if beyond > 2 * TAIL else (low, middle)
        return high


@lru_cache(maxsize=1024)
def noise_scale(spread: Spread) -> NoiseScale:
    """The posterior of the standard deviation after a spread was seen."""
    logs = [
        -0.5 * (math.log(sd / TYPICAL_SD) / LOG_SD) ** 2
        - spread.degrees_of_freedom * math.log(sd)
        - spread.squares / (2 * sd**2)
        for sd in GRID
    ]
    largest = max(logs)
    weights = [math.exp(each - largest) for each in logs]
    total = math.fsum(weights)
    return NoiseScale(tuple(weight / total for weight in weights))


def pooled_spread(values_by_configuration: Iterable[Sequence[float]]) -> Spread:
    """The spread of the log of a quantity, such as the cost of a run.

    Args:
        values_by_configuration: The quantity in the runs of each configuration; all positive.

    Example:
        >>> pooled_spread([[10.0, 10.0, 10.0], [20.0]])
        Spread(squares=0.0, degrees_of_freedom=2)
    """
    squares, freedom = 0.0, 0
    for values in values_by_configuration:
        logs = [math.log(each) for each in values]
        if logs:
            middle = fmean(logs)
            squares += sum((each - middle) ** 2 for each in logs)
            freedom += len(logs) - 1
    return Spread(squares, freedom)
