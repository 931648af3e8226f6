"""The examples of docs/integrations.md, each run by `wattloop run` on simulated GPUs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from support.forking_launcher import forking_launcher
from wattloop.commands.main import main

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
PAGE = ROOT / "docs" / "integrations.md"
MANIFESTS = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
THRESHOLD = 0.96
IMPORTED_BY_THE_TRAINER = (
    "sklearn.datasets",
    "torch._dynamo",
    "transformers.trainer",
    "transformers.models.resnet.modeling_resnet",
    "wattloop.integrations.huggingface",
)


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


def test_two_processes_of_the_trainer_share_the_batch_and_end_after_the_same_epoch(tmp_path: Path) -> None:
    for path in EXAMPLES.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "launch.py").write_text(forking_launcher("train_huggingface.py", 2, IMPORTED_BY_THE_TRAINER))
    manifest = (EXAMPLES / "huggingface.yaml").read_text()
    assert '["python", "train_huggingface.py"]' in manifest
    manifest = manifest.replace("train_huggingface.py", "launch.py").replace("gpu: 1", "gpu: 2")
    (tmp_path / "job.yaml").write_text(manifest)
    output = tmp_path / "output"
    words = ["run", str(tmp_path / "job.yaml"), "--output", str(output), "--simulated-gpus", "2", "--recurrences", "1"]
    assert main(words) == 0
    with (output / "recurrences.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["outcome"] == "reached"
    (log,) = (output / "logs").iterdir()
    # Both processes print the metrics of all examples, of the same epochs.
    logged = re.findall(r"eval_accuracy'?[=:] ?'?([0-9.]+)", log.read_text())
    assert len(logged) == 2 * float(row["epochs"])
    assert sum(float(value) >= THRESHOLD for value in logged) == 2


def test_each_line_that_the_page_adds_is_a_line_of_its_example() -> None:
    diffs = re.findall(r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(name for name, _ in diffs) == [f"train_{name}.py" for name in MANIFESTS]
    for name, diff in diffs:
        lines = {line.strip() for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()}
        added = {line[1:].strip() for line in diff.splitlines() if line.startswith("+")}
        assert added - lines == set(), name
        assert len([line for line in added if not line.startswith(("import ", "from "))]) <= 5, name
