"""Measured profiles of pipeline instructions: time and energy of each (stage, instruction) at each GPU frequency."""

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
# Whatever lies beyond was not measured; a slip of the decimal point or of the unit is more likely.
POSSIBLE = {"frequency": (1, 30_000, "MHz"), "time": (1e-9, 1e6, "s"), "energy": (1e-9, 1e12, "J")}
# Measured times and energies repeat to about this much; a smaller advantage may be chance.
RELATIVE_NOISE = 0.002


@dataclass(frozen=True)
class Option:
    """One way to run an instruction, as measured.

    Attributes:
        frequency_megahertz: GPU clock.
        time_seconds: How long the instruction takes.
        energy_joules: What it draws meanwhile.
        line: 1-based line of the file, or 0 where there is no file.
    """

    frequency_megahertz: int
    time_seconds: float
    energy_joules: float
    line: int = 0


@dataclass(frozen=True)
class Profile:
    """The options of every (stage, instruction).

    Attributes:
        source: Where it comes from, for messages.
        options: Options by (stage, instruction), frequencies falling. Instructions are in lower case with no separator:
            ``forward``, ``backward``, ``recomputation``, ``forwardbackward``.
        notes: What a reader should know of the measurements, one sentence each, with the lines.
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

    Rows come in any order, further columns are ignored. Rows of the same stage, instruction and frequency that agree
    are merged, with a note.

    Raises:
        InputError: The file is no such table, a number is out of range, or two rows disagree.
    """
    seen: dict[tuple[int, str, int], Option] = {}
    merged: list[str] = []
    for row in read_table(path, COLUMNS):
        key, option = _option(row)
        before = seen.setdefault(key, option)
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
    if not seen:
        raise InputError(str(path), "a header and no rows", "a row for each stage, instruction and frequency", 1)
    notes = [f"rows that repeat another were merged: line {', '.join(merged)}"] if merged else []
    grouped: dict[tuple[int, str], list[Option]] = defaultdict(list)
    for (stage, instruction, _), option in seen.items():
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
        least, most, unit = POSSIBLE[column]
        if not least <= value <= most:
            expected = f"{least:g} to {most:g} {unit}"
            raise InputError(row.source, repr(row.cells[column]), expected, row.line, column)
    return (stage, canonical_instruction(row.text("instruction")), frequency), Option(frequency, time, energy, row.line)


def check_coverage(profile: Profile, needed: Iterable[tuple[int, str]], stages: int) -> None:
    """Check that a profile has every (stage, instruction) that a schedule needs, and no further stages.

    Raises:
        InputError: One is missing or a stage is too many.
    """
    present = {stage for stage, _ in profile.options}
    if too_many := sorted(stage for stage in present if stage >= stages):
        line = min(
            option.line for key, options in profile.options.items() if key[0] == too_many[0] for option in options
        )
        raise InputError(
            profile.source, f"stage {too_many[0]}", f"exactly the stages 0 to {stages - 1}", line or None, "stage"
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
    """What is odd about one instruction's measurements (docs/frequency.md, "Real profiles")."""
    if len(options) == 1:
        return [f"one frequency only ({_place(options[0])}), so it cannot be slowed down"]
    notes = []
    fastest = min(options, key=lambda option: option.time_seconds)
    if fastest is not options[0]:
        notes.append(f"the highest frequency ({_place(options[0])}) is not the fastest ({_place(fastest)})")
    by_time: dict[float, list[Option]] = defaultdict(list)
    for option in options:
        by_time[option.time_seconds].append(option)
    notes.extend(
        f"several frequencies take {time:g} s ({', '.join(map(_place, same))}); one is used"
        for time, same in by_time.items()
        if len(same) > 1
    )
    within = _beaten_within_noise(options)
    if within:
        notes.append(
            f"beaten in time and energy, but by less than {RELATIVE_NOISE:.1%}, which may be noise: "
            f"{', '.join(map(_place, within))}"
        )
    return notes


def _beaten_within_noise(options: tuple[Option, ...]) -> list[Option]:
    """The options that others beat in time and energy, but all of them by less than the noise."""
    times = np.array([option.time_seconds for option in options])
    energies = np.array([option.energy_joules for option in options])
    # What takes less time and, of that, least energy is better in both if anything is; and the other way round.
    min_time, min_energy = _running_min(energies, times), _running_min(times, energies)
    near = 1 + RELATIVE_NOISE
    found = (min_time < times) & (times <= min_time * near) & (energies <= min_energy * near)
    return [option for option, is_found in zip(options, found.tolist(), strict=True) if is_found]


def _running_min(by: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each place, the least value of those that come before it by another quantity; infinite where none does."""
    order = np.argsort(by)
    least = np.concatenate([[np.inf], np.minimum.accumulate(values[order])])
    return least[np.searchsorted(by[order], by)]


def _place(option: Option) -> str:
    place = f"{option.frequency_megahertz} MHz"
    return f"{place}, line {option.line}" if option.line else place
