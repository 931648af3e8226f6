"""Each claim of the pages on security names an existing test."""

import itertools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("internals/security", "internals/remaining-risks", "concepts/security")
LINES = [line for name in PAGES for line in (ROOT / "docs" / f"{name}.md").read_text().splitlines()]
NAMED = sorted({name for line in LINES for name in re.findall(r"`(test_\w+)`", line)})
FILES = sorted({name for line in LINES for name in re.findall(r"`(tests/[\w/]+\.py)`", line)})
ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith("| ---")]
HEADS = ("| attacker |", "| part |", "| attempt |", "| table |", "| attack |")


def test_each_test_that_the_pages_name_exists() -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    definition = re.compile(r"^(?:(?:async )?def )?(test_\w+)(?:\(| = )", re.MULTILINE)
    defined = {name for text in texts for name in definition.findall(text)}
    assert len(NAMED) > 100
    assert [name for name in NAMED if name not in defined] == []


def test_each_file_that_the_pages_name_exists() -> None:
    assert [path for path in FILES if not (ROOT / path).is_file()] == []


def test_every_row_of_the_pages_names_its_test() -> None:
    claims = [row for row in ROWS if not row.startswith(HEADS)]
    assert len(claims) > 20
    assert [row for row in claims if "`test" not in row] == []


def test_the_pages_tables_are_complete() -> None:
    for before, line in itertools.pairwise(LINES):
        if line.startswith("|") and not before.startswith("|"):
            assert line.startswith(HEADS), f"a row without its table: {line[:60]}"
