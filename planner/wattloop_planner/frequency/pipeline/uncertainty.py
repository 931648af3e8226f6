"""How sure a plan's difference to another plan is, from the standard errors of the measured options.

Both plans share options and their errors, and a plan that fills its waiting has many paths of almost the same
length, of which the longest decides. So the errors are not propagated by a formula: options are drawn from
their errors, and both plans are evaluated with the same draws (Monte Carlo, JCGM 101:2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency.pipeline.instruction_profiles import RELATIVE_NOISE, Option, Rows
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import planned_options

# The root mean square of 64 draws has a deviation of 9 %.
DRAWS = 64
# An option with a large error is drawn at least this fast.
MIN_FRACTION = 0.01


@dataclass(frozen=True)
class DifferenceError:
    """Standard errors of what one plan takes beyond another.

    Attributes:
        time_seconds: Of the difference of their times.
        energy_joules: Of the difference of their energies.
    """

    time_seconds: float
    energy_joules: float


def difference_errors(problem: Problem, plans: Sequence[Rows], base: Rows) -> list[DifferenceError]:
    """How sure the difference of each plan to a base is; the same in each call.

    An error is the root mean square of the deviations from the difference without errors, so it includes that
    the longest of several paths becomes longer by their errors. An option that states no error has the usual noise
    of a measurement. The error of the blocking power, and errors that all clocks have in common, are not known
    here.

    Args:
        problem: The pipeline.
        plans: Clocks in MHz, or settings, per stage and in execution order.
        base: The plan to compare with, likewise.
    """
    table: dict[int, int] = {}
    options: list[Option] = []
    places = [_places(problem, rows, table, options) for rows in (base, *plans)]
    times, time_errors = _drawn_from([(each.time_seconds, each.time_error_seconds) for each in options])
    energies, energy_errors = _drawn_from([(each.energy_joules, each.energy_error_joules) for each in options])
    exact = _differences(problem, places, times, energies)
    random = np.random.default_rng(0)
    squares = np.zeros_like(exact)
    for _ in range(DRAWS):
        drawn_times = np.maximum(times + time_errors * random.standard_normal(len(times)), MIN_FRACTION * times)
        drawn_energies = energies + energy_errors * random.standard_normal(len(energies))
        squares += (_differences(problem, places, drawn_times, drawn_energies) - exact) ** 2
    return [DifferenceError(*map(math.sqrt, row)) for row in (squares / DRAWS).tolist()]


def _places(problem: Problem, rows: Rows, table: dict[int, int], options: list[Option]) -> npt.NDArray[np.int64]:
    """Index of each operation's option in `options`, to which options that are not in it are appended."""
    places = []
    for option in planned_options(problem, rows):
        place = table.setdefault(id(option), len(options))
        if place == len(options):
            options.append(option)
        places.append(place)
    return np.array(places, dtype=np.int64)


def _drawn_from(values: Sequence[tuple[float, float | None]]) -> tuple[Floats, Floats]:
    errors = [RELATIVE_NOISE * value if error is None else error for value, error in values]
    return np.array([value for value, _ in values]), np.array(errors)


def _differences(problem: Problem, places: Sequence[npt.NDArray[np.int64]], times: Floats, energies: Floats) -> Floats:
    """Time and energy of each plan less those of the first, shape (plans, 2)."""
    found = []
    for place in places:
        durations = times[place]
        time = problem.pipeline.longest_path(durations)
        waited = problem.graph.stages * time - float(durations.sum())
        found.append((time, float(energies[place].sum()) + problem.blocking_power_watts * waited))
    table = np.array(found)
    difference: Floats = table[1:] - table[0]
    return difference
