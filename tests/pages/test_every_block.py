"""Every code block of the readers' pages is run by a test, or the table says why not."""

import re
from pathlib import Path

from support.reader_pages.block_table import ELSEWHERE, NOT_RUN, TABLE, rows
from support.reader_pages.pages import BLOCKS, Block

ROOT = Path(__file__).parents[2]
# Each has a test of this folder, which runs all blocks of the kind that are in no row.
RUN_HERE = {"python", "diff", "manifest", "commands", "output"}


def test_each_block_is_run_or_has_one_row_of_the_table() -> None:
    unknown = [str(each) for each in BLOCKS if len(rows(each)) > 1 or not (rows(each) or each.kind in RUN_HERE)]
    assert unknown == []


def test_what_is_left_out_as_a_figure_is_one() -> None:
    figures = {each.kind for each in BLOCKS for row in rows(each) if NOT_RUN.get(row) == "a figure"}
    assert figures == {"mermaid", "text"}


def test_each_row_is_of_a_block() -> None:
    assert set(TABLE) - {row for block in BLOCKS for row in rows(block)} == set()


def test_each_test_that_a_row_names_exists() -> None:
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_a_block_is_known_by_its_language_or_by_its_first_line() -> None:
    kinds = {
        "kubectl get rtj\n": "commands",
        "spec: {mode: Advise}\n": "manifest",
        "reporting:\n  source: Logs\n": "manifest",
        "if run.reached:\n    end()\n": "python",
        "a ──▶ b\n": "text",
    }
    assert {text: Block("", "", text).kind for text in kinds} == kinds
    assert [Block("", language, "").kind for language in ("sh", "text", "csv a.csv")] == [
        "commands",
        "output",
        "csv a.csv",
    ]
