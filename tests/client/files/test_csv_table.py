"""CSV tables: columns found by name, and errors that name the line and the column."""

from pathlib import Path

import pytest

from wattloop.errors import InputError
from wattloop.files.csv_table import Row, read_table


def table(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    rows = list(read_table(table(tmp_path, "\ufeffb , a,more\n2, 1 ,x\n\n4,3,\n"), ["a", "b"]))
    assert [(row.line, row.cells) for row in rows] == [
        (2, {"a": "1", "b": "2", "more": "x"}),
        (4, {"a": "3", "b": "4", "more": ""}),
    ]


INVALID: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "line 1, column 1: found no header, expected line 1 with the columns a, b"),
    "a missing column": ("a,c\n", "line 1, column b: found no such column (columns: a, c), expected one column b"),
    "a column twice": ("a,b,a\n", "line 1, column a: found the column twice (columns: a, b, a)"),
    "a short row": ("a,b\n1,2\n3\n", "line 3, column b: found 1 cells, expected 2 as in the header"),
    "a long row": ("a,b\n1,2,3\n", "line 2, column 3: found 3 cells, expected 2 as in the header"),
    "no CSV": ('a,b\n1,"2\n', "found text that is not CSV"),
    "no UTF-8": (b"a,b\n1,\xff\n", "line 2, column 3: found bytes that are not UTF-8"),
}


@pytest.mark.parametrize(("content", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_table_is_an_error_that_names_its_place(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = table(tmp_path, content)
    with pytest.raises(InputError) as raised:
        list(read_table(path, ["a", "b"]))
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


def test_a_name_of_a_column_cannot_forge_a_line_or_fill_a_terminal(tmp_path: Path) -> None:
    path = table(tmp_path, "a,\x01\u2028" + "b" * 1000 + "\n1\n")
    with pytest.raises(InputError) as raised:
        list(read_table(path, ["a"]))
    shown = str(raised.value)
    assert r"line 2, column \x01\u2028bbb" in shown
    assert shown.isprintable()
    assert shown.endswith("b…: found 1 cells, expected 2 as in the header")
    assert len(shown) < 1000
    assert len(str(InputError("a", "\x01" * 10_000, "b"))) < 1100


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.csv: found no readable file \(No such file"):
        list(read_table(tmp_path / "nowhere.csv", ["a"]))


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)
    with pytest.raises(InputError, match="more than 67108864 bytes, expected a CSV file of at most 67108864 bytes"):
        list(read_table(path, ["a"]))


ROW = Row("t.csv", 3, {"n": "12.0", "x": "1.5", "nan": "NaN", "inf": "inf", "word": "many", "empty": "", "minus": "-1"})


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: ROW.text("empty"), "column empty: found an empty cell, expected a value"),
        (lambda: ROW.number("word"), "column word: found 'many', expected a finite number"),
        (lambda: ROW.number("nan"), "column nan: found 'NaN', expected a finite number"),
        (lambda: ROW.number("inf"), "column inf: found 'inf', expected a finite number"),
        (lambda: ROW.number("minus", minimum=0), "column minus: found '-1', expected a finite number of at least 0"),
        (lambda: ROW.number("x", above=1.5), "column x: found '1.5', expected a finite number above 1.5"),
        (lambda: ROW.integer("x"), "column x: found '1.5', expected a whole number"),
        (lambda: ROW.integer("n", minimum=13), "column n: found '12.0', expected a whole number of at least 13"),
    ],
)
def test_an_invalid_cell_is_an_error_that_names_line_and_column(read: object, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read()  # type: ignore[operator]
    assert str(raised.value) == f"t.csv: line 3, {message}"


def test_cells_are_read_by_their_type() -> None:
    assert (ROW.integer("n"), ROW.number("x"), ROW.text("word")) == (12, 1.5, "many")
    assert [ROW.optional_number(name) for name in ("x", "nan", "empty", "missing")] == [1.5, None, None, None]
