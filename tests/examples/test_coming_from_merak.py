"""The table of docs/coming-from.md for Merak: what it names exists."""

import re
from pathlib import Path

import models
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pipeline"
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Merak\n")[2].partition("\n## ")[0]
LINES = [line for line in SECTION.splitlines() if line.startswith("|")]
# Without the head of the table.
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES[2:]]
# Of torchrun and of `wattloop`.
OTHER_OPTIONS = {"--nnodes", "--node-rank", "--master-addr", "--nproc-per-node", "--schedule", "--from"}
OPTION = re.compile(r"--[a-z][a-z-]*")
FILE = re.compile(r"`(?:examples/pipeline/)?(\w+\.(?:py|yaml))`")
NAMES_OF_FILE = re.compile(r"((?:`[\w.]+`(?:, | and )?)+) of `(?:examples/pipeline/)?(\w+\.py)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_row_has_two_cells_and_its_options_files_and_names_exist(row: list[str]) -> None:
    theirs, ours = row
    assert theirs
    assert ours
    options = {name for action in models.parser()._actions for name in action.option_strings}
    assert set(OPTION.findall(ours)) <= options | OTHER_OPTIONS
    for name in FILE.findall(ours):
        assert (EXAMPLE / name).exists(), name
    for names, file in NAMES_OF_FILE.findall(ours):
        text = (EXAMPLE / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            last = name.rpartition(".")[2]
            assert re.search(rf"^\s*(def|class) {last}\b|^{last}\b.* = ", text, re.MULTILINE), name


def test_the_table_has_the_two_columns_and_is_one_table() -> None:
    assert [line for line in LINES if line.startswith("|---")] == ["|---|---|"] == LINES[1:2]


def test_each_option_of_the_trainer_is_described() -> None:
    page = (ROOT / "docs" / "internals" / "pipeline-models.md").read_text(encoding="utf-8") + SECTION
    options = {name for action in models.parser()._actions for name in action.option_strings if name.startswith("--")}
    assert {each for each in options if each not in page} <= {"--help"}
