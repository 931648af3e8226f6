"""Measured profiles: time and energy of each (stage, instruction) at each GPU frequency."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattloop.errors import InputError

# Repeated measurements differ by about this fraction; a smaller advantage may be noise.
RELATIVE_NOISE = 0.002
# A GPU that computes has another power at a clock that is higher by this factor; an idle one has not, within its noise.
LOAD_CLOCK_RATIO, IDLE_SPREAD = 1.25, 0.02


class PlannedSetting(NamedTuple):
    """What a plan sets for an operation.

    Attributes:
        knobs: Values of the profile's knobs, in their order.
    """

    frequency_megahertz: int
    knobs: tuple[str, ...] = ()


def knob_label(names: Iterable[str], values: Iterable[str]) -> str:
    """The knobs of an operation as a person reads them.

    Example:
        >>> knob_label(("sm", "overlap"), ("16", "yes"))
        'sm=16 overlap=yes'
    """
    return " ".join(map("=".join, zip(names, values, strict=True)))


# Settings per stage and in execution order; a number is a clock without knobs.
Rows = Sequence[Sequence[int | PlannedSetting]]


def setting_of(entry: int | PlannedSetting) -> PlannedSetting:
    """The setting; a number is a clock without knobs."""
    return entry if isinstance(entry, PlannedSetting) else PlannedSetting(int(entry))


@dataclass(frozen=True)
class Option:
    """One way to run an instruction, as measured.

    Attributes:
        line: 1-based line of the file, or 0 without a file.
        knobs: Values of the profile's knobs: further choices, such as the number of streaming multiprocessors
            for communication, that the planner passes on and does not interpret.
        time_error_seconds: Standard error of the time; None if unknown.
        energy_error_joules: Standard error of the energy; None if unknown.
        interpolated: Whether the option was not measured, but interpolated between measured clocks.
    """

    frequency_megahertz: int
    time_seconds: float
    energy_joules: float
    line: int = 0
    knobs: tuple[str, ...] = ()
    time_error_seconds: float | None = None
    energy_error_joules: float | None = None
    interpolated: bool = False

    @property
    def setting(self) -> PlannedSetting:
        """The clock and the knobs."""
        return PlannedSetting(self.frequency_megahertz, self.knobs)


@dataclass(frozen=True)
class Profile:
    """The options of every (stage, instruction).

    Attributes:
        options: Options by (stage, instruction), in order of falling frequency. Instructions are in lower
            case without separators: ``forward``, ``backward``, ``recomputation``, ``forwardbackward``.
        notes: Anomalies of the measurements, one sentence each, with line numbers.
    """

    source: str
    options: Mapping[tuple[int, str], tuple[Option, ...]]
    notes: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()


def _check_load(profile: Profile) -> None:
    """Refuse what was measured on idle GPUs, such as simulated ones that the training does not know."""
    options = [option for of_kind in profile.options.values() for option in of_kind]
    clocks = [option.frequency_megahertz for option in options]
    watts = [option.energy_joules / option.time_seconds for option in options if option.energy_joules > 0]
    is_far = bool(clocks) and max(clocks) >= LOAD_CLOCK_RATIO * min(clocks)
    if is_far and len(watts) == len(options) and max(watts) <= (1 + IDLE_SPREAD) * min(watts):
        raise InputError(
            profile.source,
            f"{min(watts):.4g} to {max(watts):.4g} W of each instruction at {min(clocks)} to {max(clocks)} MHz, the "
            "power of idle GPUs",
            "instructions that the GPUs compute; simulated GPUs need a training that puts load on them",
        )


def canonical_instruction(text: str) -> str:
    """The instruction's name in lower case, without spaces, hyphens and underscores.

    Example:
        >>> canonical_instruction("Forward_Backward")
        'forwardbackward'
    """
    return text.lower().replace("_", "").replace("-", "").replace(" ", "")


def profile_of(
    source: str,
    options: Mapping[tuple[int, str], Iterable[Option]],
    notes: Iterable[str] = (),
    knobs: tuple[str, ...] = (),
) -> Profile:
    """A profile with these options, in order, and with notes on their anomalies.

    Raises:
        InputError: The GPUs did not work: they have one power at all clocks.
    """
    ordered = {
        key: tuple(sorted(options[key], key=lambda option: (-option.frequency_megahertz, option.knobs)))
        for key in sorted(options)
    }
    anomalies = (
        f"stage {stage}, {instruction}: {note}"
        for (stage, instruction), found in ordered.items()
        for note in _anomalies(found)
    )
    found = Profile(source, ordered, (*notes, *anomalies), knobs)
    _check_load(found)
    return found


def check_coverage(profile: Profile, needed: Iterable[tuple[int, str]], stages: int) -> None:
    """Check that a profile has every (stage, instruction) that a schedule needs, and no other stages.

    Raises:
        InputError: A (stage, instruction) is missing, or the profile has additional stages.
    """
    present = {stage for stage, _ in profile.options}
    if additional := sorted(stage for stage in present if stage >= stages):
        line = min(
            option.line for key, options in profile.options.items() if key[0] == additional[0] for option in options
        )
        raise InputError(
            profile.source, f"stage {additional[0]}", f"exactly the stages 0 to {stages - 1}", line or None, "stage"
        )
    for stage, instruction in sorted(set(needed)):
        if (stage, instruction) in profile.options:
            continue
        if stage not in present:
            found = f"no row of stage {stage} (stages: {', '.join(map(str, sorted(present)))})"
        else:
            there = ", ".join(sorted(name for number, name in profile.options if number == stage))
            found = f"no row of stage {stage}, {instruction} (its instructions: {there})"
        raise InputError(profile.source, found, f"rows for stage {stage}, {instruction}")


def _anomalies(options: tuple[Option, ...]) -> list[str]:
    if len(options) == 1:
        return [f"one frequency only ({_described(options[0])}), so it cannot be slowed down"]
    notes = []
    fastest = min(options, key=lambda option: (option.time_seconds, -option.frequency_megahertz))
    if fastest.frequency_megahertz != options[0].frequency_megahertz:
        notes.append(f"the highest frequency ({_described(options[0])}) is not the fastest ({_described(fastest)})")
    by_time: dict[float, list[Option]] = defaultdict(list)
    for option in options:
        by_time[option.time_seconds].append(option)
    notes.extend(
        f"several frequencies take {time:g} s ({', '.join(map(_described, same))}); one is used"
        for time, same in by_time.items()
        if len(same) > 1
    )
    within = _dominated_within_noise(options)
    if within:
        notes.append(
            f"dominated in time and energy, but by less than {RELATIVE_NOISE:.1%}, which may be noise: "
            f"{', '.join(map(_described, within))}"
        )
    return notes


def _dominated_within_noise(options: tuple[Option, ...]) -> list[Option]:
    """The options that are dominated in time and energy, but by less than the noise."""
    times = np.array([option.time_seconds for option in options])
    energies = np.array([option.energy_joules for option in options])
    # An option is dominated if the minimum time among options of less energy is below its own time.
    min_time, min_energy = _running_min(energies, times), _running_min(times, energies)
    near = 1 + RELATIVE_NOISE
    found = (min_time < times) & (times <= min_time * near) & (energies <= min_energy * near)
    return [option for option, is_found in zip(options, found.tolist(), strict=True) if is_found]


def _running_min(by: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each item, the minimum value of the items that precede it by `by`; infinite without one."""
    order = np.argsort(by)
    minimum = np.concatenate([[np.inf], np.minimum.accumulate(values[order])])
    return minimum[np.searchsorted(by[order], by)]


def _described(option: Option) -> str:
    place = " ".join((f"{option.frequency_megahertz} MHz", *option.knobs))
    return f"{place}, line {option.line}" if option.line else place
