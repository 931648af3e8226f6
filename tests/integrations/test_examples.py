"""The examples of docs/integrations.md, each run by `wattloop run` on simulated GPUs."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from support.forking_launcher import forking_launcher
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
PAGE = ROOT / "docs" / "integrations.md"
MANIFESTS = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
OF_TWO_PROCESSES = "huggingface"
THRESHOLD = 0.96
IMPORTED_BY_THE_TRAINER = (
    "sklearn.datasets",
    "torch._dynamo",
    "transformers.trainer",
    "transformers.models.resnet.modeling_resnet",
    "wattloop.integrations.huggingface",
)


def run(manifest: Path, output: Path, gpus: int = 1) -> dict[str, str]:
    """Run a job once, and return the row of its recurrence."""
    words = ["run", str(manifest), "--output", str(output), "--recurrences", "1", "--simulated-gpus", str(gpus)]
    assert main(words) == 0
    with (output / "recurrences.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["outcome"] == "reached"
    assert float(row["energy_joules"]) > 0
    return row


def reported(capfd: pytest.CaptureFixture[str]) -> Any:
    """The metric that the run says it has reached. The Trainer logs four digits."""
    (found,) = re.findall(r"accuracy reached ([0-9.]+) after", capfd.readouterr().err)
    return pytest.approx(float(found), abs=1e-4)


# The usual set runs one of them with two processes.
@pytest.mark.parametrize(
    "name", exhaustive_after(sorted(MANIFESTS, key=lambda name: name == OF_TWO_PROCESSES), usual=len(MANIFESTS) - 1)
)
def test_an_example_ends_when_its_target_is_reached_with_the_metric_that_it_logs(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    row = run(EXAMPLES / f"{name}.yaml", tmp_path / "output")
    (log,) = (tmp_path / "output" / "logs").iterdir()
    logged = [float(value) for value in re.findall(r"accuracy'?[=:] ?'?([0-9.]+)", log.read_text())]
    assert len(logged) == float(row["epochs"])
    # It stops at the first epoch that reaches the target, not later.
    assert [value >= THRESHOLD for value in logged] == [False] * (len(logged) - 1) + [True]
    assert logged[-1] == reported(capfd)


def test_two_processes_of_the_trainer_share_the_batch_and_end_after_the_same_epoch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in EXAMPLES.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "launch.py").write_text(forking_launcher("train_huggingface.py", 2, IMPORTED_BY_THE_TRAINER))
    manifest = (EXAMPLES / f"{OF_TWO_PROCESSES}.yaml").read_text()
    assert '["python", "train_huggingface.py"]' in manifest
    manifest = manifest.replace("train_huggingface.py", "launch.py").replace("gpu: 1", "gpu: 2")
    (tmp_path / "job.yaml").write_text(manifest)
    output = tmp_path / "output"
    row = run(tmp_path / "job.yaml", output, gpus=2)
    (log,) = (output / "logs").iterdir()
    # Both processes print the metrics of all examples, of the same epochs.
    logged = [float(value) for value in re.findall(r"eval_accuracy'?[=:] ?'?([0-9.]+)", log.read_text())]
    assert len(logged) == 2 * float(row["epochs"])
    assert [value for value in logged if value >= THRESHOLD] == [reported(capfd)] * 2


def test_each_line_that_the_page_adds_is_a_line_of_its_example() -> None:
    diffs = re.findall(r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(name for name, _ in diffs) == [f"train_{name}.py" for name in MANIFESTS]
    for name, diff in diffs:
        lines = {line.strip() for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()}
        added = {line[1:].strip() for line in diff.splitlines() if line.startswith("+")}
        assert added - lines == set(), name
        assert len([line for line in added if not line.startswith(("import ", "from "))]) <= 5, name
