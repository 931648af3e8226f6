"""docs/coming-from.md: each row has what is theirs and what is ours, and what the right column names exists.

test_coming_from_rows.py runs the rows.
"""

import functools
import importlib
import importlib.util
import re
import subprocess

import pytest

from support.coming_from.ways import ROOT, rows_of

SYSTEMS = ("Perseus and Lowtime", "Merak", "Automatic Bassoon", "Zeus", "The notebook")
# Where a name of the right column may come from: not from pages or tests, which would only repeat it.
SOURCES = (
    "client/**.py",
    "operator/**.py",
    "agent/**.py",
    "planner/**.py",
    "research/**.py",
    "examples/**",
    "crds/*.yaml",
)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# Values that a user replaces, or that PyTorch, the shell or the reader's own script gives.
NOT_OURS = {"DIR", "FILE", "FOLDER", "DATA", "BASELINE", "MODEL", "N", "i", "job", "freqs_pipeline_00333", "torchrun"}
OF_TORCHRUN = {"nnodes", "node-rank", "master-addr", "nproc-per-node"}
OF_MERAK = {"MICROBATCH_SIZE", "NUM_MICROBATCHES", "METHOD", "mbs4", "mbs8", "nmb128", "dp1", "pp4", "tp1"}


def source_words() -> set[str]:
    """Every word of the program, the examples and the schemas; each part of it, if it is an option or a file."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *(f":(glob){each.replace('**', '**/*')}" for each in SOURCES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in listed if (ROOT / file).is_file())
    files = {part for file in listed for part in WORD.findall(file)}
    return {word.strip("-") for word in WORD.findall(text)} | files


@functools.cache
def known() -> frozenset[str]:
    """All names that exist; not read where this module is only collected."""
    return frozenset(source_words() | NOT_OURS | OF_TORCHRUN | OF_MERAK)


def unknown(cell: str) -> list[str]:
    """The words in backticks of a cell that no source has."""
    words = [word.strip("-") for code in re.findall(r"`([^`]+)`", cell) for word in WORD.findall(code)]
    # argparse makes the opposite of a flag.
    return [word for word in words if word and word not in known() and word.removeprefix("no-") not in known()]


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_row_has_two_cells_and_what_the_right_one_names_exists(system: str) -> None:
    rows = rows_of(system)
    assert len(rows) > 15
    assert [row for row in rows if len(row) != 2 or not all(row)] == []
    assert {row[1]: found for row in rows if (found := unknown(row[1]))} == {}


def test_a_name_that_does_not_exist_is_found() -> None:
    assert unknown("`wattloop plan --picturesque 3`, `PipelineFrequencyMinimizer` of `pipeline.py`") == [
        "picturesque",
        "PipelineFrequencyMinimizer",
    ]


def test_each_module_and_its_names_can_be_imported() -> None:
    named = [
        (module, name)
        for system in SYSTEMS
        for _, ours in rows_of(system)
        for names, module in re.findall(r"((?:`\w+`(?:, | and )?)+) of `(wattloop[a-z_.]*)`", ours)
        for name in re.findall(r"`(\w+)`", names)
    ]
    assert ("wattloop_research.frequency.files.recorded_run_file", "read_runs") in named
    for module, name in named:
        if module.startswith("wattloop.integrations"):
            # It needs a framework; tests/integrations use it.
            assert importlib.util.find_spec(module) is not None
        else:
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
