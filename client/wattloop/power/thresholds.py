"""Values of a metric at which the power limits are measured again, as Automatic Bassoon does."""

import itertools
import math
from collections.abc import Iterable, Sequence

from wattloop.arguments import number_between
from wattloop.errors import UsageError


class Thresholds:
    """Thresholds of a metric, each crossed once.

    Args:
        values: Rising for a metric that rises, falling for one that falls. A single value is for a
            metric that rises; a metric that falls needs at least two, such as 2.0 and 1.0.
        rises: Whether the metric is known to rise, or to fall; then the values are in any order.

    Attributes:
        given: Whether there is a threshold, crossed or not.

    Raises:
        UsageError: A value is no finite number, or they neither all rise nor all fall.

    Example:
        >>> thresholds = Thresholds((0.5, 0.7, 0.9))
        >>> [thresholds.crossed(metric) for metric in (0.4, 0.55, 0.45, 0.6, 0.95, 0.99)]
        [False, True, False, False, True, False]
        >>> thresholds = Thresholds((1.0, 3.0, 2.0), rises=False)
        >>> thresholds.crossed(2.5), thresholds.left
        (True, (2.0, 1.0))
    """

    def __init__(self, values: Sequence[float], *, rises: bool | None = None) -> None:
        given: object = values
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(f"profile_again_at is {values!r}; it must be a list of numbers, such as (0.5, 0.9)")
        values = [
            number_between(each, "a value of profile_again_at", -math.inf, math.inf, "a finite number")
            for each in values
        ]
        if rises is None:
            rises = all(one < other for one, other in itertools.pairwise(values))
            if not rises and not all(one > other for one, other in itertools.pairwise(values)):
                raise UsageError(
                    f"profile_again_at is {list(values)}; expected finite values that all rise or all fall"
                )
        self._sign = 1.0 if rises else -1.0
        self._left = sorted(self._sign * value for value in values)
        self.given = bool(values)

    @property
    def left(self) -> tuple[float, ...]:
        """The thresholds that were not crossed yet, in the order in which the metric comes to them."""
        return tuple(self._sign * value for value in self._left)

    def crossed(self, metric: float) -> bool:
        """Whether this value of the metric crosses at least one threshold that was not crossed before."""
        before = len(self._left)
        self._left = [value for value in self._left if not self._sign * metric >= value]
        return len(self._left) < before
