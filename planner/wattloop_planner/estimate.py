"""An estimate: a value with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, SupportsFloat


@dataclass(frozen=True)
class Estimate:
    """An estimated value with the central 90 % interval of its posterior."""

    value: float
    low: float
    high: float

    @classmethod
    def if_known(
        cls, value: SupportsFloat | None, low: SupportsFloat | None, high: SupportsFloat | None
    ) -> Self | None:
        """The estimate of numbers that are known together; None if one of them is not.

        Example:
            >>> Estimate.if_known(31.4, 25.2, 36.0), Estimate.if_known(31.4, None, 36.0)
            (Estimate(value=31.4, low=25.2, high=36.0), None)
        """
        return None if value is None or low is None or high is None else cls(float(value), float(low), float(high))

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a multiple.

        Example:
            >>> Estimate(30.0, 20.0, 50.0).scaled(-2)
            Estimate(value=-60.0, low=-100.0, high=-40.0)
        """
        low, high = sorted((factor * self.low, factor * self.high))
        return Estimate(factor * self.value, low, high)

    @property
    def has_known_sign(self) -> bool:
        """Whether the whole interval is on one side of zero.

        Example:
            >>> Estimate(31.4, 25.2, 36.0).has_known_sign, Estimate(17.0, -340.0, 84.0).has_known_sign
            (True, False)
        """
        return not self.low < 0 < self.high


@dataclass(frozen=True)
class RunCost:
    """Expected cost of one recurrence with a configuration in joules, its start and retries included.

    Attributes:
        of_run: The expected cost, with the interval that contains that of 90 % of later recurrences.
        expected: The same value, with the interval that contains the expected cost itself with 90 %.
    """

    of_run: Estimate
    expected: Estimate

    def scaled(self, factor: float) -> RunCost:
        """The cost in another unit."""
        return RunCost(self.of_run.scaled(factor), self.expected.scaled(factor))
