"""Values of a metric at which the power limits are measured again.

The gradient noise, and with it the best batch size, changes during a training; Automatic Bassoon
profiles again when the accuracy crosses given values.
"""

from __future__ import annotations

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

    Raises:
        UsageError: A value is no finite number, or they neither all rise nor all fall.

    Example:
        >>> thresholds = Thresholds((0.5, 0.7, 0.9))
        >>> [thresholds.crossed(metric) for metric in (0.4, 0.55, 0.45, 0.6, 0.95, 0.99)]
        [False, True, False, False, True, False]
    """

    def __init__(self, values: Sequence[float]) -> None:
        given: object = values
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(f"profile_again_at is {values!r}; it must be a list of numbers, such as (0.5, 0.9)")
        values = [
            number_between(each, "a value of profile_again_at", -math.inf, math.inf, "a finite number")
            for each in values
        ]
        rises = all(one < other for one, other in itertools.pairwise(values))
        falls = all(one > other for one, other in itertools.pairwise(values))
        if not all(map(math.isfinite, values)) or not (rises or falls):
            raise UsageError(f"profile_again_at is {list(values)}; expected finite values that all rise or all fall")
        self._sign = 1.0 if rises else -1.0
        self._left = [self._sign * value for value in values]
        self._given = bool(values)

    @classmethod
    def in_any_order(cls, values: Sequence[float], *, rises: bool) -> Thresholds:
        """Thresholds of a metric that is known to rise or to fall.

        Example:
            >>> thresholds = Thresholds.in_any_order((1.0, 3.0, 2.0), rises=False)
            >>> thresholds.crossed(2.5), thresholds.left
            (True, (2.0, 1.0))
        """
        thresholds = cls(())
        thresholds._sign = 1.0 if rises else -1.0
        thresholds._left = sorted(thresholds._sign * value for value in values)
        thresholds._given = bool(values)
        return thresholds

    @property
    def left(self) -> tuple[float, ...]:
        """The thresholds that were not crossed yet, in the order in which the metric comes to them."""
        return tuple(self._sign * value for value in self._left)

    @property
    def given(self) -> bool:
        """Whether there is a threshold, crossed or not."""
        return self._given

    def crossed(self, metric: float) -> bool:
        """Whether this value of the metric crosses at least one threshold that was not crossed before."""
        before = len(self._left)
        self._left = [value for value in self._left if not self._sign * metric >= value]
        return len(self._left) < before
