"""What commands write: no text of others controls a terminal or is a formula to a spreadsheet."""

import ast
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wattloop.commands.output
import wattloop.files.csv_table
from wattloop.commands.output import console, printable_streams
from wattloop.files.csv_table import read_table, write_csv_table

ROOT = Path(__file__).parents[3]
PACKAGES = ("client", "operator", "agent", "planner", "research")
HOSTILE = "a\x1b[2Jb\x9b31mc\rd\x07\u202ee\u2028f"
ESCAPED = "a\\x1b[2Jb\\x9b31mc\\rd\\x07\\u202ee\\u2028f"
# Programs that pass bytes to the process that started them.
PASSES_BYTES = {"plan_worker.py", "watchdog.py"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_written_to_the_streams_is_escaped_except_lines_tabs_and_other_languages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout
    with printable_streams():
        print("naïve\t×", HOSTILE, "日本")
        sys.stderr.writelines([HOSTILE, "\n"])
    assert sys.stdout is before
    assert capsys.readouterr() == (f"naïve\t× {ESCAPED} 日本\n", f"{ESCAPED}\n")


def test_a_console_on_a_terminal_has_colours_of_its_own_and_none_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = sys.stdout
    with printable_streams():
        console(width=80).print("[red]\x1b[2J\x9b31m", style="bold")
    assert isinstance(terminal, Terminal)
    assert terminal.getvalue() == "\x1b[1m[red]\\x1b[2J\\x9b31m\x1b[0m\n"


def _other_ways() -> Iterator[str]:
    """Places in the packages that write in another way than by the streams, `console` and `write_csv_table`."""
    own = {Path(each.__file__ or "") for each in (wattloop.commands.output, wattloop.files.csv_table)}
    for path in (each for package in PACKAGES for each in (ROOT / package).rglob("*.py")):
        if path in own:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Call(func=ast.Name("Console") | ast.Attribute(attr="Console" | "get_console")):
                    yield f"{place} makes a console"
                case ast.Call(func=ast.Name("Live" | "Progress"), keywords=keywords) if "/local/" not in place:
                    is_rich = any(each.arg in {"transient", "auto_refresh"} for each in keywords)
                    if is_rich and not any(each.arg == "console" for each in keywords):
                        yield f"{place} uses rich's own console"
                case ast.Attribute(value=ast.Name("sys"), attr="__stdout__" | "__stderr__"):
                    yield f"{place} goes past the streams"
                case ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="buffer"):
                    if path.name not in PASSES_BYTES:
                        yield f"{place} writes bytes"
                case ast.Attribute(value=ast.Name("csv"), attr="writer" | "DictWriter"):
                    yield f"{place} writes CSV"


def test_no_command_writes_in_another_way() -> None:
    assert list(_other_ways()) == []


CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=20).map(str.strip)


@given(cells=st.lists(CELLS, min_size=1, max_size=4))
@pytest.mark.parametrize("first", ["=cmd|' /C calc'!A0", "'=1", "+1+1", "-2+3", "@SUM(1)", "-3.5", "1e5", "digits"])
def test_no_text_of_a_table_is_a_formula_and_each_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, first: str, cells: list[str]
) -> None:
    path, columns = tmp_path_factory.getbasetemp() / "table.csv", ["first", *map(str, range(len(cells)))]
    with path.open("w", newline="") as stream:
        write_csv_table(stream, columns, [[first, *cells]])
    line = path.read_text().split("\n")[1]
    is_number = first in {"-3.5", "1e5"}
    assert line.startswith(first) == (is_number or first == "digits")
    assert line[0] not in "=+@"
    assert line[0] != "-" or is_number
    (row,) = read_table(path, columns)
    assert list(row.cells.values()) == [first, *cells]
