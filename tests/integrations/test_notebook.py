"""The notebook of the energy/time trade-off runs from its first cell to its last, as a reader runs it."""

import base64
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.integrations

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = Path("tradeoff", "tradeoff.ipynb")
TIMEOUT_SECONDS = 900
# The 12 trainings of the notebook, and 4 of them.
GRID = "BATCH_SIZES = (64, 256, 1024)\nPOWER_LIMITS = (175, 225, 300, 400)\n"
PART_OF_THE_GRID = "BATCH_SIZES = (64, 256)\nPOWER_LIMITS = (175, 400)\n"
MAX_KEPT_BYTES = 128 * 1024


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook: Any) -> list[bytes]:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [base64.b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("grid", exhaustive_after([PART_OF_THE_GRID, GRID]), ids=["part", "whole"])
def test_the_notebook_runs_and_its_own_assertions_hold(tmp_path: Path, grid: str) -> None:
    for folder in ("digits", "tradeoff"):
        shutil.copytree(EXAMPLES / folder, tmp_path / folder)
    notebook = nbformat.read(tmp_path / NOTEBOOK, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs = []
    sweep = code_cells(notebook)[0]
    assert GRID in sweep.source
    sweep.source = sweep.source.replace(GRID, grid)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path / "tradeoff")}},
    )
    client.execute()
    assert all(cell.outputs for cell in code_cells(notebook)[:3])
    assert len(pictures(notebook)) == 2
    assert (tmp_path / "tradeoff" / "sweep" / "tradeoff.png").exists()


def test_the_kept_notebook_has_its_pictures_and_is_small() -> None:
    notebook = nbformat.read(EXAMPLES / NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    assert [picture[:4] for picture in pictures(notebook)] == [b"\x89PNG"] * 2
    assert not any(output.output_type == "error" for cell in code_cells(notebook) for output in cell.outputs)
    assert (EXAMPLES / NOTEBOOK).stat().st_size < MAX_KEPT_BYTES
