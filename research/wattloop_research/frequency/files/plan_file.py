"""Reads and writes plan files in Lowtime's format: a Python list with one list per stage, then comments.

Plan files are parsed as literals and never executed.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from wattloop.errors import InputError
from wattloop.pipeline.rank_plan_file import read_rows
from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.instruction_profiles import (
    PlannedSetting,
    Rows,
    canonical_instruction,
    knob_label,
    setting_of,
)
from wattloop_planner.frequency.pipeline.schedules import BACKWARD, FORWARD

PLAIN_INSTRUCTIONS = {FORWARD, BACKWARD}
ENTRY = "a frequency in MHz or a pair of instruction and frequency"


def plan_file_name(number: int) -> str:
    """The file name of the plan with this number.

    Example:
        >>> plan_file_name(7)
        'freqs_pipeline_00007.py'
    """
    return f"freqs_pipeline_{number:05d}.py"


def write_plan(
    stream: IO[str], graph: OperationGraph, rows: Rows, comments: Sequence[str], knobs: Sequence[str] = ()
) -> None:
    """Write clocks in MHz, with instructions if there are others than forward and backward, or knobs.

    Args:
        stream: Receives the text.
        graph: The operations.
        rows: Clocks in MHz, or settings, per stage and in execution order.
        comments: Comment lines after the plan.
        knobs: Names of the knobs. An entry is then a triple of instruction, clock and a dict of the knobs.
    """
    with_names = bool(knobs) or not set(graph.instructions) <= PLAIN_INSTRUCTIONS
    stream.write("[\n")
    for order, row in zip(graph.order, rows, strict=True):
        settings = [setting_of(entry) for entry in row]
        entries: list[object] = [setting.frequency_megahertz for setting in settings]
        if with_names:
            names = [graph.instructions[index] for index in graph.instruction_of[order].tolist()]
            entries = list(zip(names, entries, strict=True))
        if knobs:
            values = [dict(zip(knobs, setting.knobs, strict=True)) for setting in settings]
            entries = [
                (name, setting.frequency_megahertz, value)
                for name, setting, value in zip(names, settings, values, strict=True)
            ]
        stream.write(f"{entries},\n")
    stream.write("]\n")
    stream.writelines(f"# {comment}\n" for comment in comments)


def read_plan(path: str | Path, graph: OperationGraph, knobs: Sequence[str] = ()) -> list[list[PlannedSetting]]:
    """Read a plan file of this command, of Lowtime or of Perseus' artifact.

    Args:
        path: The file.
        graph: The operations.
        knobs: Names of the knobs that each entry must have.

    Returns:
        Clocks and knobs, per stage and in execution order.

    Raises:
        InputError: The file is invalid, or does not match the graph.
    """
    rows, _ = read_rows(path)
    source = str(path)
    if len(rows) != graph.stages:
        raise InputError(source, f"{len(rows)} stages", f"{graph.stages}")
    return [_row(source, stage, row, graph, knobs) for stage, row in enumerate(rows)]


def knobs_of_plan(path: str | Path) -> Counter[str]:
    """How many operations of a plan file have which knobs, as `knob_label` writes them; empty without knobs.

    Raises:
        InputError: The file is no plan.
    """
    rows, _ = read_rows(path)
    entries = (entry for row in rows if isinstance(row, list) for entry in row)
    return Counter(
        knob_label(map(str, entry[2]), map(str, entry[2].values()))
        for entry in entries
        if isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[2], dict)
    )


def _row(source: str, stage: int, row: object, graph: OperationGraph, knobs: Sequence[str]) -> list[PlannedSetting]:
    order = graph.order[stage].tolist()
    if not isinstance(row, list):
        raise InputError(source, repr(row)[:80], "a list of frequencies", column=f"stage {stage}")
    if len(row) != len(order):
        raise InputError(source, f"{len(row)} operations", f"{len(order)}", column=f"stage {stage}")
    return [
        _setting(source, graph, (operation, place), entry, knobs)
        for place, (operation, entry) in enumerate(zip(order, row, strict=True))
    ]


def _setting(
    source: str, graph: OperationGraph, operation_and_place: tuple[int, int], entry: object, knobs: Sequence[str]
) -> PlannedSetting:
    operation, place = operation_and_place
    column = f"stage {graph.stage_of[operation]}, operation {place}"
    expected = graph.instructions[graph.instruction_of[operation]]
    values: object = {}
    if isinstance(entry, tuple) and len(entry) == 3:
        *entry, values = entry
        entry = tuple(entry)
    if (
        not isinstance(values, dict)
        or set(values) != set(knobs)
        or not all(isinstance(value, str) for value in values.values())
    ):
        expected_knobs = f"a text for each of the knobs {', '.join(knobs)}" if knobs else "no knobs, or --knobs"
        raise InputError(source, repr(values or entry)[:80], expected_knobs, column=column)
    if isinstance(entry, tuple) and len(entry) == 2:
        name, entry = entry
        if not isinstance(name, str) or canonical_instruction(name) != expected:
            raise InputError(source, repr(name)[:80], f"the instruction {expected}", column=column)
    if isinstance(entry, bool) or not isinstance(entry, int):
        raise InputError(source, repr(entry)[:80], ENTRY, column=column)
    return PlannedSetting(entry, tuple(values[knob] for knob in knobs))
