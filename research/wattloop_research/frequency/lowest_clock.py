"""The lowest clock that is worth measuring: below it, every instruction takes more time and more energy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement


def lowest_useful_clock(measurements: Iterable[ClockMeasurement], blocking_power_watts: float = 0.0) -> int:
    """The lowest clock at which some instruction has its least energy; 0 if no energy is known.

    A lower clock takes longer and saves nothing, for any instruction of any rank. A rank that would wait otherwise
    saves the blocking power meanwhile, so e − P·t counts where P is known.

    Args:
        measurements: Time and energy of each instruction at each clock.
        blocking_power_watts: Power of a GPU that waits; 0: the energy alone counts.

    Example:
        >>> measured = [ClockMeasurement("0", 0, "forward", clock, seconds, joules)
        ...             for clock, seconds, joules in ((1410, 1.0, 300.0), (990, 1.4, 240.0), (600, 2.2, 270.0))]
        >>> lowest_useful_clock(measured), lowest_useful_clock(measured, 80.0)
        (990, 600)
    """
    least: dict[tuple[str, int, str], list[tuple[float, int]]] = defaultdict(list)
    for each in measurements:
        if each.energy_joules is not None:
            effective = each.energy_joules - blocking_power_watts * each.time_seconds
            least[each.rank, each.stage, each.instruction].append((effective, -each.frequency_megahertz))
    return min((-min(found)[1] for found in least.values()), default=0)
