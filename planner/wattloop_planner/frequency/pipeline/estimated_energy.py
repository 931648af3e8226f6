"""The energy at a clock above all those whose energy is known.

It is the clock that an instruction of the longest path needs. Without it, maximum clocks, and every plan, would
have the time of the next lower clock. Its time was measured, and its power continues that of the clocks below.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from wattloop_planner.frequency.pipeline.instruction_profiles import RELATIVE_NOISE, Option


def with_estimated_energy(timed: Option, known: Collection[Option]) -> Option:
    """An option with its measured time and an estimated energy.

    Its power is on the line through those of the two highest known clocks, or in proportion to the clock if one is
    known, and not below that of the highest one. Its error is the whole difference to that, and the error of that.

    Args:
        timed: The option, with any energy.
        known: Options with a measured energy at lower clocks and with the same knobs; at least one.

    Example:
        >>> known = [Option(1000, 1.0, 200.0), Option(1200, 0.9, 198.0)]
        >>> found = with_estimated_energy(Option(1400, 0.8, 0.0), known)
        >>> found.time_seconds, round(found.energy_joules / found.time_seconds)
        (0.8, 240)
    """
    highest, *lower = sorted(known, key=lambda option: -option.frequency_megahertz)
    watts, clock = highest.energy_joules / highest.time_seconds, highest.frequency_megahertz
    slope = watts / clock
    if lower:
        fall = watts - lower[0].energy_joules / lower[0].time_seconds
        slope = max(fall, 0.0) / (clock - lower[0].frequency_megahertz)
    rise = slope * (timed.frequency_megahertz - clock)
    error = highest.energy_error_joules
    relative = RELATIVE_NOISE if error is None else error / highest.energy_joules
    return replace(
        timed,
        energy_joules=(watts + rise) * timed.time_seconds,
        energy_error_joules=math.hypot(rise, relative * watts) * timed.time_seconds,
        interpolated=True,
    )
