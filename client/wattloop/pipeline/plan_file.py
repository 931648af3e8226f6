"""Reads the row of one rank from a plan file of ``wattloop plan``, for use without the operator.

The file is a Python list with one list per stage, each with a frequency in MHz or a pair of instruction and
frequency for each instruction in execution order. It is parsed as a literal and never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from wattloop.errors import InputError
from wattloop.files.reading import read_text
from wattloop.pipeline.messages import MAX_INSTRUCTIONS, MAX_MEGAHERTZ
from wattloop.pipeline.place import PipelinePlace

MAX_FILE_BYTES = 64 * 1024 * 1024
FORM = "a list with one list of clocks in MHz per pipeline rank"

PlannedClock = tuple[str, int]
"""An instruction's kind (empty if the file does not name it) and its clock in MHz."""


def read_plan_row(path: str | Path, place: PipelinePlace) -> tuple[PlannedClock, ...]:
    """The clocks of one rank, in execution order.

    Raises:
        InputError: The file is not readable, is no plan, or is one for another number of ranks.
    """
    source = str(path)
    text = read_text(path, MAX_FILE_BYTES, "a plan file")
    try:
        rows = ast.literal_eval(text)
    except SyntaxError as error:
        raise InputError(source, f"an invalid Python list ({error.msg})", FORM, error.lineno) from error
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(source, "an expression that is not a list of numbers", FORM) from error
    if not isinstance(rows, list):
        raise InputError(source, f"a {type(rows).__name__}", FORM)
    if len(rows) != place.pipeline_parallel:
        raise InputError(
            source, f"a plan for {len(rows)} pipeline ranks", f"one for {place.pipeline_parallel}, as this job has"
        )
    return planned_clocks(rows[place.pipeline_rank], source, f"row {place.pipeline_rank}")


def planned_clocks(row: object, source: str, column: str | None = None) -> tuple[PlannedClock, ...]:
    """Check the clocks of one rank.

    Args:
        row: A sequence of numbers, or of pairs of instruction and number.
        source: Its origin, for errors.
        column: The place in the origin, for errors.

    Raises:
        InputError: It has another form.

    Example:
        >>> planned_clocks([1410, ("Forward", 900)], "plan")
        (('', 1410), ('forward', 900))
    """
    if not isinstance(row, Sequence) or isinstance(row, str) or not 0 < len(row) <= MAX_INSTRUCTIONS:
        raise InputError(source, repr(row)[:80], f"1 to {MAX_INSTRUCTIONS} clocks in MHz", column=column)
    return tuple(_planned_clock(entry, source, column) for entry in row)


def _planned_clock(entry: object, source: str, column: str | None) -> PlannedClock:
    kind, clock = entry if isinstance(entry, tuple) and len(entry) == 2 else ("", entry)
    if not isinstance(kind, str) or isinstance(clock, bool) or not isinstance(clock, int):
        raise InputError(source, repr(entry)[:80], "a clock in MHz, or a pair of instruction and clock", column=column)
    if not 0 < clock <= MAX_MEGAHERTZ:
        raise InputError(source, f"{clock} MHz", f"1 to {MAX_MEGAHERTZ} MHz", column=column)
    return kind.lower(), clock


def different_kind(row: Sequence[PlannedClock], kinds: Sequence[str]) -> str:
    """How the instructions of a plan's row differ from those that a rank runs; empty if they do not.

    Example:
        >>> different_kind((("", 900), ("backward", 915)), ("forward", "backward"))
        ''
        >>> different_kind((("forward", 900),), ("backward",))
        'position 0: the plan has forward, this rank runs backward'
    """
    if len(row) != len(kinds):
        return f"the plan has {len(row)} clocks, this rank {len(kinds)} instructions"
    for position, ((planned, _), kind) in enumerate(zip(row, kinds, strict=True)):
        if planned and planned != kind:
            return f"position {position}: the plan has {planned}, this rank runs {kind}"
    return ""
