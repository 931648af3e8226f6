"""Reads a user's graph from JSON: operations, their order on each stage, and other precedences."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from wattloop.errors import InputError
from wattloop.files.csv_table import MAX_FILE_BYTES
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.wire.message_fields import shown
from wattloop_planner.frequency.pipeline.graph import OperationGraph, check_size
from wattloop_planner.frequency.pipeline.instruction_profiles import canonical_instruction

KEYS = ("operations", "order", "edges")


def read_graph(path: str | Path) -> OperationGraph:
    """Read a graph from a JSON file.

    The form is ``{"operations": [{"stage": 0, "instruction": "forward", "microbatch": 0}, …], "order": [[indices of
    stage 0 in execution order], …], "edges": [[before, after], …]}``. The order of a stage implies
    precedences; edges add others.

    Raises:
        InputError: The file is invalid, an index or a stage is out of range, an operation is missing from
            its stage's order, or the precedences contain a cycle, which the message names.
        UsageError: There are too many operations.
    """
    source = str(path)
    reader = _Reader(source)
    document = reader.document(path)
    operations, order, edges = (document[key] for key in KEYS)
    check_size(len(operations), source)
    stages = len(order)
    if not operations or not stages:
        raise InputError(source, f"{len(operations)} operations in {stages} stages", "at least one of each")
    read = [reader.operation(index, item, stages) for index, item in enumerate(operations)]
    rows = reader.order(order, [stage for stage, _, _ in read])
    pairs = {reader.edge(index, item, len(read)) for index, item in enumerate(edges)}
    pairs |= {pair for row in rows for pair in pairwise(row)}
    names = tuple(sorted({instruction for _, instruction, _ in read}))
    joined = np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2)
    graph = OperationGraph(
        stages,
        max(microbatch for _, _, microbatch in read) + 1,
        names,
        np.array([stage for stage, _, _ in read], dtype=np.int32),
        np.array([names.index(instruction) for _, instruction, _ in read], dtype=np.int32),
        np.array([microbatch for _, _, microbatch in read], dtype=np.int32),
        np.zeros(len(read), dtype=np.int32),
        tuple(np.array(row, dtype=np.int32) for row in rows),
        np.ascontiguousarray(joined[:, 0]),
        np.ascontiguousarray(joined[:, 1]),
    )
    if cycle := _cycle(graph):
        path = " → ".join(f"{graph.name(operation)} (operation {operation})" for operation in [*cycle, cycle[0]])
        raise InputError(source, f"a cycle of precedences: {path}", "no cycle", column="edges")
    return graph


class _Reader:
    """Validates the parts of the document; errors name the location."""

    def __init__(self, source: str) -> None:
        self._source = source

    def _error(self, place: str, found: object, expected: str) -> InputError:
        return InputError(self._source, shown(found), expected, column=place)

    def document(self, path: str | Path) -> dict[str, list[Any]]:
        text = read_text(path, MAX_FILE_BYTES, "a JSON file")
        document = parse_json(text, self._source, "a JSON file with a graph", MAX_JSON_BYTES)
        if not isinstance(document, dict) or not all(isinstance(document.get(key), list) for key in KEYS):
            raise InputError(self._source, "another structure", f"an object with the lists {', '.join(KEYS)}")
        return document

    def _index(self, place: str, value: object, count: int, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise self._error(place, value, f"{what} from 0 to {count - 1}")
        return value

    def operation(self, index: int, item: object, stages: int) -> tuple[int, str, int]:
        place = f"operations[{index}]"
        if not isinstance(item, dict) or not {"stage", "instruction", "microbatch"} <= item.keys():
            raise self._error(place, item, "an object with stage, instruction and microbatch")
        instruction = item["instruction"]
        if not isinstance(instruction, str) or not canonical_instruction(instruction):
            raise self._error(f"{place}.instruction", instruction, "the name of an instruction")
        microbatch = self._index(f"{place}.microbatch", item["microbatch"], 2**31 - 1, "a microbatch")
        stage = self._index(f"{place}.stage", item["stage"], stages, "a stage with a row in order,")
        return stage, canonical_instruction(instruction), microbatch

    def order(self, rows: list[Any], stage_of: list[int]) -> list[list[int]]:
        missing = set(range(len(stage_of)))
        for stage, row in enumerate(rows):
            if not isinstance(row, list):
                raise self._error(f"order[{stage}]", row, "a list of operations")
            for place, item in enumerate(row):
                operation = self._index(f"order[{stage}][{place}]", item, len(stage_of), "an operation")
                if stage_of[operation] != stage:
                    raise self._error(f"order[{stage}][{place}]", item, f"an operation of stage {stage}")
                if operation not in missing:
                    raise self._error(f"order[{stage}][{place}]", item, "every operation once")
                missing.remove(operation)
        if missing:
            first = min(missing)
            raise self._error(f"order[{stage_of[first]}]", rows[stage_of[first]], f"operation {first} among them")
        return rows

    def edge(self, index: int, item: object, operations: int) -> tuple[int, int]:
        place = f"edges[{index}]"
        if not isinstance(item, list) or len(item) != 2:
            raise self._error(place, item, "a pair [before, after]")
        before, after = (self._index(place, end, operations, "operations") for end in item)
        return before, after


def _cycle(graph: OperationGraph) -> list[int]:
    """The operations of one cycle, each after the one before it; empty if there is none."""
    first, befores = graph.predecessors
    waiting = np.diff(first).astype(np.int64)
    afters: list[list[int]] = [[] for _ in range(graph.operations)]
    for before, after in zip(graph.befores.tolist(), graph.afters.tolist(), strict=True):
        afters[before].append(after)
    ready = np.flatnonzero(waiting == 0).tolist()
    for operation in ready:
        for after in afters[operation]:
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    left = set(range(graph.operations)) - set(ready)
    if not left:
        return []
    # Every remaining operation has a remaining predecessor, so following predecessors finds a cycle.
    path = [min(left)]
    places = {path[0]: 0}
    while True:
        operation = path[-1]
        before = next(b for b in befores[first[operation] : first[operation + 1]].tolist() if b in left)
        if before in places:
            return path[places[before] :][::-1]
        places[before] = len(path)
        path.append(before)
