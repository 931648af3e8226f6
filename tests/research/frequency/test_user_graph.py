"""Graph files: reading, validation, and the names of cycles."""

import json
from pathlib import Path
from typing import Any

import pytest

from wattloop.errors import InputError
from wattloop_research.frequency.user_graph import read_graph


def operation(stage: int, instruction: str = "forward", microbatch: int = 0) -> dict[str, Any]:
    return {"stage": stage, "instruction": instruction, "microbatch": microbatch}


def document(**changes: object) -> dict[str, object]:
    operations = [operation(0), operation(1), operation(1, "Backward"), operation(0, "backward")]
    return {"operations": operations, "order": [[0, 3], [1, 2]], "edges": [[0, 1], [2, 3]], **changes}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_graph_is_read_with_its_order_as_precedences(tmp_path: Path) -> None:
    graph = read_graph(written(tmp_path, document()))
    assert (graph.stages, graph.microbatches, graph.operations) == (2, 1, 4)
    edges = set(zip(graph.befores.tolist(), graph.afters.tolist(), strict=True))
    assert edges == {(0, 1), (2, 3), (0, 3), (1, 2)}
    assert graph.kinds == ((0, "backward"), (0, "forward"), (1, "backward"), (1, "forward"))
    assert [row.tolist() for row in graph.order] == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"line 1, column 2: found invalid JSON \(Expecting property name"),
        ("[]", r"found another structure, expected an object with the lists operations, order, edges"),
        (document(operations=[]), r"found 0 operations in 2 stages"),
        (document(operations=[{"stage": 0}]), r"column operations\[0\]: found an object, expected an object with"),
        (
            document(operations=[operation(7)]),
            r"column operations\[0\].stage: found 7, expected a stage .* from 0 to 1",
        ),
        (document(operations=[operation(0, "")]), r"column operations\[0\].instruction: found ''"),
        (document(operations=[operation(0, microbatch=-1)]), r"column operations\[0\].microbatch: found -1"),
        (document(order=[[0, 3, 3], [1, 2]]), r"column order\[0\]\[2\]: found 3, expected every operation once"),
        (document(order=[[0], [1, 2]]), r"column order\[0\]: found a list, expected operation 3 among them"),
        (document(order=[[0, 1], [3, 2]]), r"column order\[0\]\[1\]: found 1, expected an operation of stage 0"),
        (document(order=[[0, 3], 5]), r"column order\[1\]: found 5, expected a list of operations"),
        (document(edges=[[0, 9]]), r"column edges\[0\]: found 9, expected operations from 0 to 3"),
        (document(edges=[[0, 1, 2]]), r"column edges\[0\]: found a list, expected a pair"),
        (document(edges=[[0, True]]), r"column edges\[0\]: found True"),
        (
            document(edges=[[2, 0]]),
            r"a cycle of precedences: .*stage 0 forward of microbatch 0 \(operation 0\) → .*no cycle",
        ),
        (
            document(edges=[[1, 1]]),
            r"cycle of precedences: stage 1 forward of microbatch 0 \(operation 1\) → stage 1",
        ),
    ],
)
def test_an_invalid_graph_is_rejected_with_its_position(tmp_path: Path, content: object, message: str) -> None:
    if isinstance(content, dict) and content["edges"] == [[2, 0]]:
        content["edges"] = [[0, 1], [2, 0]]
    with pytest.raises(InputError, match=message):
        read_graph(written(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"operations": [9' + "9" * 5000 + "]}", "a whole number of more than 4300 digits"),
        ("[" * 50_000, "lists or objects nested too deeply"),
    ],
    ids=["digits", "nested"],
)
def test_json_that_python_cannot_read_is_rejected(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"found invalid JSON \({found}\), expected a JSON file"):
        read_graph(path)


def test_a_missing_graph_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no readable file"):
        read_graph(tmp_path / "none.json")
