"""Reads profiles from CSV files: measured by one rank of each stage, or by several."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from wattloop.errors import InputError, UsageError
from wattloop.files.csv_table import Row, read_table
from wattloop.pipeline.knobs import MAX_KNOB_CHARACTERS, MAX_KNOBS
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, Profile, canonical_instruction, profile_of
from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement, merged_profile

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
RANK, TIME_ERROR, ENERGY_ERROR = "rank", "time_error", "energy_error"
BLOCKING_POWER = "blocking_power"
GPU_PRODUCT = "gpu_product"
# Plausible ranges. A value outside is more likely a misplaced decimal point or a wrong unit.
PLAUSIBLE = {"frequency": (1, 30_000, "MHz"), "time": (1e-9, 1e6, "s"), "energy": (1e-9, 1e12, "J")}


def read_profile(path: str | Path, knobs: Sequence[str] = ()) -> Profile:
    """Read a profile from a CSV file with the columns stage, instruction, frequency (MHz), time (s) and energy (J).

    Rows can be in any order, and additional columns are ignored, except ``time_error`` and ``energy_error``
    (standard errors) and ``rank``. Equal rows of the same stage, instruction, frequency, knobs and rank are
    merged, with a note. With a column ``rank``, the rows of several ranks are merged as `merged_profile`
    describes, and an empty energy means that the rank does not know it yet.

    Args:
        path: The file.
        knobs: Columns whose values, together with the frequency, identify an option.

    Raises:
        InputError: The file is invalid, a number is out of range, or two rows contradict each other.
        UsageError: A knob has the name of a column with another meaning, or is named twice.
    """
    check_knobs(knobs)
    rows: dict[tuple[object, ...], ClockMeasurement] = {}
    merged: list[str] = []
    by_rank = False
    for row in read_table(path, (*COLUMNS, *knobs)):
        by_rank = RANK in row.cells
        found = _measurement(row, knobs, by_rank=by_rank)
        key = (found.stage, found.instruction, found.frequency_megahertz, found.knobs, found.rank)
        before = rows.setdefault(key, found)
        if before is found:
            continue
        if (before.time_seconds, before.energy_joules) != (found.time_seconds, found.energy_joules):
            raise _contradiction(row.source, found, before, by_rank=by_rank)
        merged.append(f"{found.line} (as line {before.line})")
    if not rows:
        raise InputError(str(path), "a header and no rows", "a row for each stage, instruction and frequency", 1)
    notes = [f"repeated rows were merged: line {', '.join(merged)}"] if merged else []
    if by_rank:
        profile = merged_profile(str(path), rows.values(), tuple(knobs))
        return Profile(profile.source, profile.options, (*notes, *profile.notes), profile.knobs)
    return profile_of(str(path), _options(rows.values()), notes, tuple(knobs))


def read_blocking_power(path: str | Path) -> float:
    """The power of a waiting rank, from the column ``blocking_power``: the mean over the ranks that know it, in watts.

    Raises:
        InputError: The file is invalid, or no rank knows it.
    """
    by_rank: dict[str, float] = {}
    for row in read_table(path, COLUMNS):
        watts = row.optional_number(BLOCKING_POWER, minimum=0)
        if watts is not None:
            by_rank[row.cells.get(RANK, "")] = watts
    if not by_rank:
        expected = "a number of watts in the column, or --blocking-power"
        raise InputError(str(path), "no blocking power", expected, column=BLOCKING_POWER)
    return sum(by_rank.values()) / len(by_rank)


def read_gpu_product(path: str | Path) -> str:
    """The product name of the profiled GPUs, from the column ``gpu_product``; empty without it.

    Raises:
        InputError: The file is invalid, or has rows of different GPUs.
    """
    products = sorted({row.cells.get(GPU_PRODUCT, "") for row in read_table(path, COLUMNS)} - {""})
    if len(products) > 1:
        raise InputError(str(path), " and ".join(products[:2]), "rows of one GPU model", column=GPU_PRODUCT)
    return products[0] if products else ""


def check_knobs(knobs: Sequence[str]) -> None:
    """Check the names of knobs.

    Raises:
        UsageError: A knob has the name of a column with another meaning, is named twice, or has no name.
    """
    reserved = {*COLUMNS, RANK, TIME_ERROR, ENERGY_ERROR, BLOCKING_POWER}
    if len(knobs) > MAX_KNOBS:
        raise UsageError(f"--knobs: found {len(knobs)} columns, expected at most {MAX_KNOBS}")
    for number, knob in enumerate(knobs):
        if not _is_knob_text(knob) or knob in reserved or knob in knobs[:number]:
            raise UsageError(
                f"--knobs {knob[:MAX_KNOB_CHARACTERS]}: must name each further column of the profile once, and none "
                f"of {', '.join(sorted(reserved))}"
            )


def _is_knob_text(text: str) -> bool:
    return 0 < len(text) <= MAX_KNOB_CHARACTERS and text.isascii() and text.isprintable()


def _measurement(row: Row, knobs: Sequence[str], *, by_rank: bool) -> ClockMeasurement:
    stage = row.integer("stage", minimum=0)
    frequency = row.integer("frequency", minimum=1)
    time = row.number("time", above=0)
    unknown_energy = by_rank and row.optional_number("energy") is None
    energy = None if unknown_energy else row.number("energy", above=0)
    for column, value in (("frequency", frequency), ("time", time), ("energy", energy)):
        low, high, unit = PLAUSIBLE[column]
        if value is not None and not low <= value <= high:
            expected = f"{low:g} to {high:g} {unit}"
            raise InputError(row.source, repr(row.cells[column]), expected, row.line, column)
    values = tuple(row.text(knob) for knob in knobs)
    if invalid := [knob for knob, value in zip(knobs, values, strict=True) if not _is_knob_text(value)]:
        expected = f"at most {MAX_KNOB_CHARACTERS} characters of printable ASCII"
        raise InputError(row.source, repr(row.cells[invalid[0]])[:80], expected, row.line, invalid[0])
    return ClockMeasurement(
        row.text(RANK) if by_rank else "",
        stage,
        canonical_instruction(row.text("instruction")),
        frequency,
        time,
        energy,
        row.optional_number(TIME_ERROR, minimum=0),
        row.optional_number(ENERGY_ERROR, minimum=0),
        values,
        row.line,
    )


def _contradiction(source: str, found: ClockMeasurement, before: ClockMeasurement, *, by_rank: bool) -> InputError:
    place = " ".join((f"{found.frequency_megahertz} MHz", *found.knobs))
    of_rank = f" of rank {found.rank}" if by_rank else ""
    expected = "one row for each stage, instruction and frequency" + (" of a rank" if by_rank else "")
    remedy = "" if by_rank else "; rows of several ranks need a column rank"
    return InputError(
        source,
        f"a second row{of_rank} for stage {found.stage}, {found.instruction}, {place} that disagrees with line "
        f"{before.line}",
        expected + remedy,
        found.line,
    )


def _options(rows: Iterable[ClockMeasurement]) -> dict[tuple[int, str], list[Option]]:
    options: dict[tuple[int, str], list[Option]] = defaultdict(list)
    for each in rows:
        if each.energy_joules is None:  # only with ranks
            continue
        options[each.stage, each.instruction].append(
            Option(
                each.frequency_megahertz,
                each.time_seconds,
                each.energy_joules,
                each.line,
                each.knobs,
                each.time_error_seconds,
                each.energy_error_joules,
            )
        )
    return options
