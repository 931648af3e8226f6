"""Reads measured profiles: time and energy of each (stage, instruction) at each GPU frequency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wattloop.errors import InputError
from wattloop.files.table import Row, read_table

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
# Plausible ranges. A value outside is more likely a misplaced decimal point or a wrong unit.
PLAUSIBLE = {"frequency": (1, 30_000, "MHz"), "time": (1e-9, 1e6, "s"), "energy": (1e-9, 1e12, "J")}
# Repeated measurements differ by about this fraction; a smaller advantage may be noise.
RELATIVE_NOISE = 0.002


@dataclass(frozen=True)
class Option:
    """One way to run an instruction, as measured.

    Attributes:
        frequency_megahertz: GPU clock.
        time_seconds: Duration of the instruction.
        energy_joules: Energy of the instruction.
        line: 1-based line of the file, or 0 without a file.
    """

    frequency_megahertz: int
    time_seconds: float
    energy_joules: float
    line: int = 0


@dataclass(frozen=True)
class Profile:
    """The options of every (stage, instruction).

    Attributes:
        source: Name of the source, for messages.
        options: Options by (stage, instruction), in order of falling frequency. Instructions are in lower
            case without separators: ``forward``, ``backward``, ``recomputation``, ``forwardbackward``.
        notes: Anomalies of the measurements, one sentence each, with line numbers.
    """

    source: str
    options: Mapping[tuple[int, str], tuple[Option, ...]]
    notes: tuple[str, ...] = ()


def canonical_instruction(text: str) -> str:
    """The instruction's name in lower case, without spaces, hyphens and underscores.

    Example:
        >>> canonical_instruction("Forward_Backward")
        'forwardbackward'
    """
    return text.lower().replace("_", "").replace("-", "").replace(" ", "")


def read_profile(path: str | Path) -> Profile:
    """Read a profile from a CSV file with the columns stage, instruction, frequency (MHz), time (s) and energy (J).

    Rows can be in any order, and additional columns are ignored. Equal rows of the same stage, instruction
    and frequency are merged, with a note.

    Raises:
        InputError: The file is invalid, a number is out of range, or two rows contradict each other.
    """
    options_by_key: dict[tuple[int, str, int], Option] = {}
    merged: list[str] = []
    for row in read_table(path, COLUMNS):
        key, option = _option(row)
        before = options_by_key.setdefault(key, option)
        if before is option:
            continue
        if (before.time_seconds, before.energy_joules) != (option.time_seconds, option.energy_joules):
            raise InputError(
                row.source,
                f"a second row for stage {key[0]}, {key[1]}, {key[2]} MHz that disagrees with line {before.line}",
                "one row for each stage, instruction and frequency",
                row.line,
            )
        merged.append(f"{row.line} (as line {before.line})")
    if not options_by_key:
        raise InputError(str(path), "a header and no rows", "a row for each stage, instruction and frequency", 1)
    notes = [f"repeated rows were merged: line {', '.join(merged)}"] if merged else []
    grouped: dict[tuple[int, str], list[Option]] = defaultdict(list)
    for (stage, instruction, _), option in options_by_key.items():
        grouped[stage, instruction].append(option)
    options = {
        key: tuple(sorted(grouped[key], key=lambda option: -option.frequency_megahertz)) for key in sorted(grouped)
    }
    for (stage, instruction), found in options.items():
        notes.extend(f"stage {stage}, {instruction}: {note}" for note in _anomalies(found))
    return Profile(str(path), options, tuple(notes))


def _option(row: Row) -> tuple[tuple[int, str, int], Option]:
    stage = row.integer("stage", minimum=0)
    frequency = row.integer("frequency", minimum=1)
    time, energy = row.number("time", above=0), row.number("energy", above=0)
    for column, value in (("frequency", frequency), ("time", time), ("energy", energy)):
        low, high, unit = PLAUSIBLE[column]
        if not low <= value <= high:
            expected = f"{low:g} to {high:g} {unit}"
            raise InputError(row.source, repr(row.cells[column]), expected, row.line, column)
    return (stage, canonical_instruction(row.text("instruction")), frequency), Option(frequency, time, energy, row.line)


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
    """Anomalies of one instruction's measurements (docs/frequency.md, "Real profiles")."""
    if len(options) == 1:
        return [f"one frequency only ({_described(options[0])}), so it cannot be slowed down"]
    notes = []
    fastest = min(options, key=lambda option: option.time_seconds)
    if fastest is not options[0]:
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
    place = f"{option.frequency_megahertz} MHz"
    return f"{place}, line {option.line}" if option.line else place
