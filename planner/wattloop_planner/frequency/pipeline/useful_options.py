"""The useful options of an operation, given that waiting also costs energy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.instruction_profiles import Option


@dataclass(frozen=True)
class UsefulOptions:
    """The Pareto-optimal options of one (stage, instruction) in time and effective energy.

    The effective energy of an option is ``energy - blocking power * time``: its energy beyond that of a
    waiting GPU. The sum over the operations differs from the pipeline's energy by
    ``stages * blocking power * iteration time``. For each iteration time, the same plan therefore
    minimises both (docs/frequency.md). All arrays have the shape (options,), except `corners`.

    Attributes:
        frequencies_megahertz: Clocks.
        times_seconds: Times, strictly rising.
        effective_joules: Effective energies, strictly falling.
        energies_joules: Measured energies.
        corners: Indices of the options on the lower convex hull of (time, effective energy), including the
            first and the last option.
        knobs: Values of the profile's knobs, one tuple for each option.
    """

    frequencies_megahertz: npt.NDArray[np.int64]
    times_seconds: npt.NDArray[np.float64]
    effective_joules: npt.NDArray[np.float64]
    energies_joules: npt.NDArray[np.float64]
    corners: npt.NDArray[np.int64]
    knobs: tuple[tuple[str, ...], ...]


def useful_options(options: Iterable[Option], blocking_power_watts: float) -> UsefulOptions:
    """The Pareto set of the options by time and effective energy, and its lower convex hull.

    Args:
        options: At least one.
        blocking_power_watts: Power of a GPU that waits for another stage.

    Example:
        >>> found = useful_options([Option(1000, 1.0, 300), Option(900, 1.1, 290), Option(800, 1.2, 200)], 100)
        >>> found.frequencies_megahertz.tolist(), found.corners.tolist()
        ([1000, 900, 800], [0, 2])
    """
    by_time = sorted(
        options,
        key=lambda option: (
            option.time_seconds,
            option.energy_joules - blocking_power_watts * option.time_seconds,
            option.frequency_megahertz,
            option.knobs,
        ),
    )
    useful: list[Option] = []
    effective: list[float] = []
    for option in by_time:
        value = option.energy_joules - blocking_power_watts * option.time_seconds
        if not useful or (value < effective[-1] and option.time_seconds > useful[-1].time_seconds):
            useful.append(option)
            effective.append(value)
    times = np.array([option.time_seconds for option in useful])
    costs = np.array(effective)
    return UsefulOptions(
        np.array([option.frequency_megahertz for option in useful], dtype=np.int64),
        times,
        costs,
        np.array([option.energy_joules for option in useful]),
        _lower_hull(times, costs),
        tuple(option.knobs for option in useful),
    )


def _lower_hull(times: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Lower convex hull of points in order of time, by Andrew's monotone chain."""
    hull: list[int] = []
    for point in range(len(times)):
        while len(hull) > 1 and not _turns_left(times, costs, hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return np.array(hull, dtype=np.int64)


def _turns_left(
    times: npt.NDArray[np.float64], costs: npt.NDArray[np.float64], first: int, middle: int, last: int
) -> bool:
    rise = (costs[middle] - costs[first]) * (times[last] - times[first])
    return bool(rise < (costs[last] - costs[first]) * (times[middle] - times[first]))
