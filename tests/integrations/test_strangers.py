"""A stranger's script of PyTorch, compiled and with accumulated gradients, which knows nothing of Wattloop."""

import re
from pathlib import Path

import pytest

from support.strangers.definitions import COMPILED_TORCH
from support.strangers.on_laptop import local_job
from support.test_sets.parameters import exhaustive_after

# The script imports PyTorch and its compiler.
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(600)]


@pytest.mark.parametrize("count", exhaustive_after([1, 2]))
def test_a_compiled_script_reaches_and_its_rows_say_what_it_printed(tmp_path: Path, count: int) -> None:
    local = local_job(COMPILED_TORCH, tmp_path)
    assert local.run("--recurrences", str(count), "--simulated-load", "cpu") == 0
    rows = local.rows()
    assert [row["outcome"] for row in rows] == ["reached"] * count
    for row, log in zip(rows, sorted((local.output / "logs").glob("compiled-torch-*.log")), strict=True):
        printed = dict(re.findall(r"Epoch +(\d+) .* accuracy = (\S+)", log.read_text()))
        assert float(printed[row["epochs"]]) == pytest.approx(float(row["metric"]))
        assert float(row["energy_joules"]) > 0
