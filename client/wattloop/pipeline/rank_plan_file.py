"""Reads the row of one rank from a plan file of ``wattloop plan``, for use without the operator.

The file is a Python list with one list per stage, each with a frequency in MHz, a pair of instruction and
frequency, or these with a dict of knobs for each instruction in execution order. It is read as JSON, and never
executed: Python's own parser takes 500 bytes of memory for each number.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wattloop.errors import InputError, UsageError
from wattloop.files.reading import MAX_JSON_BYTES, memory_bytes, read_text
from wattloop.pipeline.instruction import MAX_INSTRUCTIONS
from wattloop.pipeline.knobs import NO_KNOBS, KnobChoices, Knobs
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import MAX_MEGAHERTZ
from wattloop.wire.message_fields import MessageError, json_problem
from wattloop.wire.training_messages import MAX_PRODUCT_CHARACTERS

MAX_FILE_BYTES = 64 * 1024 * 1024
# Begins the comment that names the GPU model.
PRODUCT_COMMENT = "GPU product: "
PLAN_FILE = re.compile(r"freqs_pipeline_(\d{1,8})\.py")
GPU_PRODUCT = re.compile(rf"^# {PRODUCT_COMMENT}([ -~]{{1,{MAX_PRODUCT_CHARACTERS}}})$", re.MULTILINE)
FORM = "a list with one list per stage"
LITERALS = "lists of numbers, of pairs of a text and a number, or of these with a dict of texts"
# What Python writes in another way than JSON: comments, texts in single quotes, tuples, names.
TOKEN = re.compile(r"""\#[^\n]*|'[^'\\\n]*'|"[^"\\\n]*"|[()\[\]]|\b(?:True|False|None)\b""")
IN_JSON = {"(": "[", ")": "]", "[": "[", "]": "]", "True": "true", "False": "false", "None": "null"}
LAST_COMMA = re.compile(r'"[^"]*"|(?<=[^\s\[{,]),(?=\s*[\]}])')
# Of a plan of 600,000 operations with names; each takes 60 bytes while it is replaced.
MAX_TOKENS = 4_000_000
ENTRY = "a clock in MHz, a pair of instruction and clock, or these with a dict of knobs"


class PlannedInstruction(NamedTuple):
    """What a plan says of an instruction.

    Attributes:
        kind: Its kind; empty if the plan does not name it.
        megahertz: Its clock.
        knobs: Its knobs.
    """

    kind: str
    megahertz: int
    knobs: Knobs = NO_KNOBS


PlanRow = tuple[PlannedInstruction, ...]
# As a script gives it: a file, or its entries.
Plan = str | Path | Sequence[int | tuple[str, int] | tuple[str, int, Knobs]]


def given_plan(plan: Plan, place: PipelinePlace, gpu_product: str) -> tuple[PlanRow, str]:
    """The plan that a script gives to a rank: its instructions in execution order, and the GPU model that it is for.

    Args:
        plan: The plan.
        place: The place of the rank.
        gpu_product: The GPU model that the script names; empty: that of the plan file.

    Raises:
        InputError: The plan is not valid.
        UsageError: The plan file names another GPU model.
    """
    if not isinstance(plan, (str, Path)):
        return plan_row(plan, "plan"), gpu_product
    source, (rows, product) = str(plan), read_rows(plan)
    if len(rows) != place.pipeline_parallel:
        raise InputError(
            source, f"a plan for {len(rows)} pipeline ranks", f"one for {place.pipeline_parallel}, as this job has"
        )
    if gpu_product and product and gpu_product != product:
        raise UsageError(f"gpu_product: found {gpu_product}, expected {product}, as {plan} says")
    return plan_row(rows[place.pipeline_rank], source, f"row {place.pipeline_rank}"), gpu_product or product


def read_rows(path: str | Path) -> tuple[list[object], str]:
    """The list in a plan file, unchecked, and the GPU model that it is for; empty if it names none.

    Raises:
        InputError: The file is not readable, or is no list of numbers, texts, tuples and dicts, or too large.
    """
    source, text = str(path), read_text(path, MAX_FILE_BYTES, "a plan file")
    rows = parse_literal(text, source)
    if not isinstance(rows, list):
        raise InputError(source, f"a {type(rows).__name__}", FORM)
    product = GPU_PRODUCT.search(text)
    # A pair is a list in JSON.
    return [_with_tuples(row) for row in rows], product[1] if product else ""


def _with_tuples(row: object) -> object:
    return [tuple(each) if isinstance(each, list) else each for each in row] if isinstance(row, list) else row


def parse_literal(text: str, source: str) -> object:
    """The value of Python's literals, with lists in place of tuples.

    Args:
        text: The text.
        source: Its origin, for errors.

    Raises:
        InputError: The text is no such value, or takes too much memory.

    Example:
        >>> parse_literal("[[1410, ('forward', 900)],]  # two entries", "plan")
        [[1410, ['forward', 900]]]
    """
    if sum(map(text.count, "'\"(#")) > MAX_TOKENS:
        raise InputError(source, "too many values", LITERALS)
    # Nearly all tokens keep their lengths, so the places of errors are those in the text.
    tokens = _Tokens(text, source)
    as_json = LAST_COMMA.sub(lambda found: found[0] if found[0] != "," else " ", TOKEN.sub(tokens.in_json, text))
    if memory_bytes(as_json.encode()) > MAX_JSON_BYTES:
        raise InputError(source, "too many values", LITERALS)
    try:
        value: object = json.loads(as_json)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()[:40]
        found = repr(rest) if rest else "the end of the file"
        raise InputError(source, found, LITERALS, error.lineno, error.colno) from error
    except (ValueError, RecursionError) as error:
        raise InputError(source, json_problem(error), LITERALS) from error
    return value


class _Tokens:
    """The tokens of a text in JSON, in which a tuple ends as a list does."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._ends: list[str] = []

    def in_json(self, found: re.Match[str]) -> str:
        """A token in JSON."""
        part = found[0]
        if part.startswith("#"):
            return " " * len(part)
        if part[0] in "'\"":
            return '"' + part[1:-1].replace('"', r"\u0022") + '"'
        if part in "([":
            self._ends.append(")" if part == "(" else "]")
        elif part in ")]" and self._ends and (end := self._ends.pop()) != part:
            begin = self._text.rfind("\n", 0, found.start()) + 1
            line, column = self._text.count("\n", 0, begin) + 1, found.start() - begin + 1
            raise InputError(self._source, repr(part), repr(end), line, column)
        return IN_JSON[part]


def plan_row(row: object, source: str, column: str | None = None) -> PlanRow:
    """Check the plan of one rank.

    Args:
        row: A sequence of numbers, of pairs of instruction and number, or of these with a dict of knobs.
        source: Its origin, for errors.
        column: The place in the origin, for errors.

    Raises:
        InputError: It has another form.

    Example:
        >>> [entry[:2] for entry in plan_row([1410, ("Forward", 900)], "plan")]
        [('', 1410), ('forward', 900)]
        >>> plan_row([("forward", 1410, {"sm": "16"}), ("backward", 900, {"sm": "20"})], "plan")[1].knobs["sm"]
        '20'
    """
    if not isinstance(row, Sequence) or isinstance(row, str) or not 0 < len(row) <= MAX_INSTRUCTIONS:
        raise InputError(source, repr(row)[:80], f"1 to {MAX_INSTRUCTIONS} clocks in MHz", column=column)
    found = tuple(_planned_instruction(entry, source, column) for entry in row)
    try:
        knob_choices(found)
    except MessageError as error:
        raise InputError(source, str(error), "knobs that a rank can be given", column=column) from error
    return found


def _planned_instruction(entry: object, source: str, column: str | None) -> PlannedInstruction:
    parts = entry if isinstance(entry, tuple) else ("", entry)
    kind, clock, knobs = (*parts, NO_KNOBS) if len(parts) == 2 else parts if len(parts) == 3 else ("", None, None)
    if not isinstance(kind, str) or isinstance(clock, bool) or not isinstance(clock, int):
        raise InputError(source, repr(entry)[:80], ENTRY, column=column)
    if not isinstance(knobs, Mapping) or not all(isinstance(each, str) for pair in knobs.items() for each in pair):
        raise InputError(source, repr(knobs)[:80], "a dict of knobs, with a text for each", column=column)
    if not 0 < clock <= MAX_MEGAHERTZ:
        raise InputError(source, f"{clock} MHz", f"1 to {MAX_MEGAHERTZ} MHz", column=column)
    return PlannedInstruction(kind.lower(), clock, knobs)


def knob_choices(row: PlanRow) -> KnobChoices | None:
    """The knobs of a row in the form of a directive; None if it has none.

    Raises:
        MessageError: Its instructions have different knobs, or more than a directive holds.
    """
    return KnobChoices.of([entry.knobs for entry in row])


def different_kind(row: PlanRow, kinds: Sequence[str]) -> str:
    """How the instructions of a plan's row differ from those that a rank runs; empty if they do not.

    Example:
        >>> different_kind(plan_row([900, ("backward", 915)], "plan"), ("forward", "backward"))
        ''
        >>> different_kind(plan_row([("forward", 900)], "plan"), ("backward",))
        'position 0: the plan has forward, this rank runs backward'
    """
    if len(row) != len(kinds):
        return f"the plan has {len(row)} clocks, this rank {len(kinds)} instructions"
    for position, (planned, kind) in enumerate(zip(row, kinds, strict=True)):
        if planned.kind and planned.kind != kind:
            return f"position {position}: the plan has {planned.kind}, this rank runs {kind}"
    return ""
