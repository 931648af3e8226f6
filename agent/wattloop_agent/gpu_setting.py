"""The settings of a GPU that can be held, and the values that are allowed for one."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from dataclasses import dataclass


class GpuSetting(enum.StrEnum):
    """A setting that can be held. Power limits are in watts, clocks in megahertz."""

    POWER_LIMIT = "power_limit"
    GRAPHICS_CLOCK = "graphics_clock"
    MEMORY_CLOCK = "memory_clock"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.value.replace("_", " ")

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "watts" if self is GpuSetting.POWER_LIMIT else "megahertz"


# By the name of the clock in a request.
CLOCKS = {"graphics": GpuSetting.GRAPHICS_CLOCK, "memory": GpuSetting.MEMORY_CLOCK}


@dataclass(frozen=True)
class AllowedRange:
    """The values allowed for a setting: a range, and for clocks the steps in it.

    Attributes:
        minimum: The lowest value.
        maximum: The highest value.
        steps: The allowed values in ascending order; empty: every value in the range.
    """

    minimum: float
    maximum: float
    steps: tuple[float, ...] = ()

    def narrowed(self, other: AllowedRange | None) -> AllowedRange:
        """The intersection with another range, with the steps of this one."""
        if other is None:
            return self
        minimum, maximum = max(self.minimum, other.minimum), min(self.maximum, other.maximum)
        return AllowedRange(
            minimum, maximum, self.steps[bisect_left(self.steps, minimum) : bisect_right(self.steps, maximum)]
        )

    def nearest(self, value: float) -> float:
        """The value itself, or the nearest step if there are any (the lower one of two).

        Example:
            >>> clocks = AllowedRange(210.0, 240.0, (210.0, 225.0, 240.0))
            >>> [clocks.nearest(value) for value in (0.0, 217.5, 218.0, 225.0, 999.0)]
            [210.0, 210.0, 225.0, 225.0, 240.0]
        """
        if not self.steps:
            return value
        above = bisect_left(self.steps, value)
        return min(self.steps[max(above - 1, 0) : above + 1], key=lambda step: (abs(step - value), step))
