"""The examples of docs/integrations.md, each run by `wattloop run` on simulated GPUs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from wattloop.commands.main import main

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
PAGE = ROOT / "docs" / "integrations.md"
MANIFESTS = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
THRESHOLD = 0.96


def run(name: str, output: Path, *options: str) -> list[dict[str, str]]:
    """Run the example, and return the rows of its recurrences."""
    words = ["run", str(EXAMPLES / f"{name}.yaml"), "--output", str(output), "--simulated-gpus", "1", *options]
    assert main(words) == 0
    with (output / "recurrences.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_example_ends_when_its_target_is_reached_with_the_metric_that_it_logs(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (row,) = run(name, tmp_path / "output", "--recurrences", "1")
    assert row["outcome"] == "reached"
    assert float(row["energy_joules"]) > 0
    (log,) = (tmp_path / "output" / "logs").iterdir()
    logged = [float(value) for value in re.findall(r"accuracy'?[=:] ?'?([0-9.]+)", log.read_text())]
    assert len(logged) == float(row["epochs"])
    # It stops at the first epoch that reaches the target, not later.
    assert [value >= THRESHOLD for value in logged] == [False] * (len(logged) - 1) + [True]
    (reported,) = re.findall(r"accuracy reached ([0-9.]+) after", capfd.readouterr().err)
    # The Trainer logs four digits.
    assert logged[-1] == pytest.approx(float(reported), abs=1e-4)


def test_each_line_that_the_page_adds_is_a_line_of_its_example() -> None:
    diffs = re.findall(r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(name for name, _ in diffs) == [f"train_{name}.py" for name in MANIFESTS]
    for name, diff in diffs:
        lines = {line.strip() for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()}
        added = {line[1:].strip() for line in diff.splitlines() if line.startswith("+")}
        assert added - lines == set(), name
        assert len([line for line in added if not line.startswith(("import ", "from "))]) <= 5, name
