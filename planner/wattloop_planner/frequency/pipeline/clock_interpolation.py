"""Options at clocks between measured ones, with their uncertainty (docs/internals/frequency-profiles.md)."""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wattloop_planner.frequency.pipeline.instruction_profiles import RELATIVE_NOISE, Option, Profile, profile_of

# Options whose time or energy is less certain are left out.
MAX_RELATIVE_ERROR = 0.01
# Without a third point, nothing is known about the curvature.
MIN_MEASURED_CLOCKS = 3


@dataclass(frozen=True)
class _Estimate:
    value: float
    error: float


def interpolated(
    profile: Profile, clocks_megahertz: Iterable[int], max_relative_error: float = MAX_RELATIVE_ERROR
) -> Profile:
    """The profile with further options at these clocks.

    Clocks that were measured, and clocks outside the measured ones, are ignored: nothing is extrapolated. An
    instruction with fewer than three measured clocks is left as it is. An option whose time or energy has a
    larger relative error than `max_relative_error` is left out. Notes name what was added and left out.

    Args:
        profile: The measured options.
        clocks_megahertz: Clocks to add.
        max_relative_error: Bound of the relative standard error, beyond which an option is not trusted.

    Example:
        >>> options = [Option(f, 0.1 + 100 / f, 0.2 * f * (0.1 + 100 / f)) for f in (1000, 1200, 1410)]
        >>> found = interpolated(profile_of("example", {(0, "forward"): options}), [1100]).options[0, "forward"][2]
        >>> found.frequency_megahertz, round(found.time_seconds, 6), round(found.energy_joules, 3)
        (1100, 0.190909, 42.0)
    """
    wanted = sorted(set(clocks_megahertz))
    options: dict[tuple[int, str], list[Option]] = {}
    notes = list(profile.notes)
    for (stage, instruction), found in profile.options.items():
        added, uncertain = _added(found, wanted, max_relative_error)
        options[stage, instruction] = [*found, *added]
        if added:
            notes.append(
                f"stage {stage}, {instruction}: {len(added)} clocks were interpolated, with an error of at most "
                f"{max(map(_relative_error, added)):.2%}"
            )
        if uncertain:
            worst = max(uncertain, key=_relative_error)
            notes.append(
                f"stage {stage}, {instruction}: {len(uncertain)} clocks were not interpolated, because the error would "
                f"be up to {_relative_error(worst):.2%} ({worst.frequency_megahertz} MHz) and may be at most "
                f"{max_relative_error:.2%}; measure more clocks around it"
            )
    ordered = profile_of(profile.source, options, (), profile.knobs)
    return Profile(profile.source, ordered.options, tuple(notes), profile.knobs)


def clocks_between(profile: Profile, step_megahertz: int) -> list[int]:
    """The clocks from the lowest to the highest measured one, at a distance from the highest that the step divides."""
    measured = [option.frequency_megahertz for options in profile.options.values() for option in options]
    return list(range(max(measured), min(measured) - 1, -step_megahertz))


def _added(options: Sequence[Option], clocks: Sequence[int], bound: float) -> tuple[list[Option], list[Option]]:
    """The options to add, and those that are not certain enough."""
    by_knobs: dict[tuple[str, ...], list[Option]] = defaultdict(list)
    for option in options:
        if not option.interpolated:
            by_knobs[option.knobs].append(option)
    added: list[Option] = []
    uncertain: list[Option] = []
    for measured in by_knobs.values():
        measured.sort(key=lambda option: option.frequency_megahertz)
        known = {option.frequency_megahertz for option in measured}
        if len(known) < MIN_MEASURED_CLOCKS:
            continue
        low, high = min(known), max(known)
        inside = [clock for clock in clocks if clock not in known and low < clock < high]
        for option in _interpolated_options(measured, inside):
            (added if _relative_error(option) <= bound else uncertain).append(option)
    return added, uncertain


def _relative_error(option: Option) -> float:
    return max(
        (option.time_error_seconds or 0.0) / option.time_seconds,
        (option.energy_error_joules or 0.0) / option.energy_joules,
    )


class _Curve:
    """Time against the reciprocal of the clock, or power against the clock, of the measured options."""

    def __init__(self, places: Sequence[float], values: Sequence[float], errors: Sequence[float | None]) -> None:
        self._places = places
        self._values = values
        noise = _noise(places, values)
        self._errors = [value * noise if error is None else error for value, error in zip(values, errors, strict=True)]

    def at(self, index: int, place: float) -> _Estimate:
        """The linear interpolation between the points `index` and `index + 1`, with its error."""
        low, high = self._places[index], self._places[index + 1]
        share = (place - low) / (high - low)
        # Half the second derivative, from the triples of points that contain the interval.
        curvature = max(
            abs(_second_difference(self._places[start : start + 3], self._values[start : start + 3]))
            for start in (index - 1, index)
            if 0 <= start <= len(self._places) - 3
        )
        remainder = abs((place - low) * (place - high)) * curvature
        measured = math.hypot((1 - share) * self._errors[index], share * self._errors[index + 1])
        value = (1 - share) * self._values[index] + share * self._values[index + 1]
        return _Estimate(value, measured + remainder)


def _interpolated_options(measured: Sequence[Option], clocks: Sequence[int]) -> Iterator[Option]:
    """The options at these clocks, which are between measured ones, given in rising order of clocks."""
    known = [float(option.frequency_megahertz) for option in measured]
    times = _Curve(
        [1 / clock for clock in known],
        [option.time_seconds for option in measured],
        [option.time_error_seconds for option in measured],
    )
    powers = _Curve(
        known,
        [option.energy_joules / option.time_seconds for option in measured],
        [
            None if option.energy_error_joules is None else option.energy_error_joules / option.time_seconds
            for option in measured
        ],
    )
    for clock in clocks:
        index = bisect.bisect_left(known, clock) - 1
        time, power = times.at(index, 1 / clock), powers.at(index, clock)
        energy = power.value * time.value
        yield Option(
            clock,
            time.value,
            energy,
            knobs=measured[0].knobs,
            time_error_seconds=time.error,
            energy_error_joules=energy * math.hypot(power.error / power.value, time.error / time.value),
            interpolated=True,
        )


def _noise(places: Sequence[float], values: Sequence[float]) -> float:
    """Relative noise of one value: how well its neighbours predict each value, at least the usual noise."""
    squares = []
    for index in range(1, len(values) - 1):
        low, high = places[index - 1], places[index + 1]
        share = (places[index] - low) / (high - low)
        predicted = (1 - share) * values[index - 1] + share * values[index + 1]
        # The neighbours' noise is in the prediction, too.
        parts = 1 + share**2 + (1 - share) ** 2
        squares.append((predicted / values[index] - 1) ** 2 / parts)
    return max(RELATIVE_NOISE, math.sqrt(math.fsum(squares) / len(squares)))


def _second_difference(places: Sequence[float], values: Sequence[float]) -> float:
    rising = (values[1] - values[0]) / (places[1] - places[0])
    following = (values[2] - values[1]) / (places[2] - places[1])
    return (following - rising) / (places[2] - places[0])
