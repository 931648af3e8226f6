"""Plan files: writing, reading (also those of Lowtime), and never executing."""

import io
from pathlib import Path

import pytest

from support.pipelines.plan_rows import clocks
from wattloop.errors import InputError
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.schedules import EarlyRecomputation, OneForwardOneBackward
from wattloop_research.frequency.files.plan_file import read_plan, write_plan

GRAPH = schedule_graph(OneForwardOneBackward(2, 1))
NAMED = schedule_graph(EarlyRecomputation(2, 1))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "freqs_pipeline_00000.py"
    path.write_text(text)
    return path


def test_a_plan_file_round_trips(tmp_path: Path) -> None:
    stream = io.StringIO()
    write_plan(stream, GRAPH, [[1410, 1395], [1380, 1365]], ["Plan 0: time 1 s"])
    assert stream.getvalue() == "[\n[1410, 1395],\n[1380, 1365],\n]\n# Plan 0: time 1 s\n"
    assert clocks(read_plan(written(tmp_path, stream.getvalue()), GRAPH)) == [[1410, 1395], [1380, 1365]]


def test_instructions_are_named_where_there_are_more_than_two(tmp_path: Path) -> None:
    stream = io.StringIO()
    write_plan(stream, NAMED, [[1410, 1395, 1380], [1365, 1350]], [])
    assert stream.getvalue().splitlines()[1] == "[('forward', 1410), ('recomputation', 1395), ('backward', 1380)],"
    assert clocks(read_plan(written(tmp_path, stream.getvalue()), NAMED)) == [[1410, 1395, 1380], [1365, 1350]]


def test_a_plan_of_lowtime_is_read(tmp_path: Path) -> None:
    text = "[\n[1410, 1395],\n[1380, 1365],\n]\n# Iteration 0: cost change 0.1 \n# Iteration 0: total cost 20.5 \n"
    assert clocks(read_plan(written(tmp_path, text), GRAPH)) == [[1410, 1395], [1380, 1365]]
    pairs = (
        "[\n[('forward', 1410), ('Backward', 1395)],\n[('forward', 1380), ('backward', 1365)],\n]\n# Iteration 3 x\n"
    )
    assert clocks(read_plan(written(tmp_path, pairs), GRAPH)) == [[1410, 1395], [1380, 1365]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1410, 1395]]", "found 1 stages, expected 2"),
        ("[[1410, 1395], [1]]", "column stage 1: found 1 operations, expected 2"),
        ("[[1410, 1395], [1, 'x']]", "column stage 1, operation 1: found 'x', expected a frequency in MHz or a pair"),
        ("[[1410, 1395], [1, True]]", "column stage 1, operation 1: found True"),
        ("[[1410, 1395], [1, 2.5]]", "column stage 1, operation 1: found 2.5"),
        ("[[1410, 1395], 3]", "column stage 1: found 3, expected a list of frequencies"),
        ("[[1410, 1395], [1, ('forward', 2)]]", "operation 1: found 'forward', expected the instruction backward"),
        ("{1: 2}", "line 1, column 2: found '1: 2}', expected lists of numbers"),
        ("{'a': 2}", "found a dict, expected a list with one list per stage"),
        ("[[1410,", "line 1, column 8: found the end of the file, expected lists of numbers"),
        ("[[1410 1395]]", "line 1, column 8: found '1395]]', expected lists of numbers"),
        ("[[1410, 1395], [,]]", "line 1, column 17: found .,\\]\\]., expected lists of numbers"),
        ("[[1410,, 1395]]", "line 1, column 8: found ', 1395]]', expected lists of numbers"),
        ("[[1410, 1395],\n[1, (2]]", "line 2, column 7: found ']', expected '\\)'"),
        ("[[1410, 1395], [1, 2)]", "line 1, column 21: found '\\)', expected ']'"),
        ("[[1410], [" + "1" * 5000 + "]]", "found a whole number of more than 4300 digits, expected lists"),
        ("[[1410], ['" + "x" * 5000 + "']]", "column stage 0: found 1 operations, expected 2"),
        ("__import__('os').mkdir('executed')", "line 1, column 1: found .__import__.*, expected lists of numbers"),
        ("(lambda: [[1, 2], [3, 4]])()", "line 1, column 2: found 'lambda: .*, expected lists of numbers"),
        ("[" * 5000, "found lists or objects nested too deeply"),
    ],
)
def test_an_invalid_plan_file_is_rejected_and_never_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_plan(path, GRAPH)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_a_missing_plan_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no readable file"):
        read_plan(tmp_path / "none.py", GRAPH)
