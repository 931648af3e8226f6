"""An unchanged script of Hugging Face's Trainer as a recurring job, by its own callback and by its log."""

import re
from pathlib import Path

import pytest

from support.local_runs.huggingface_script import SCRIPT, evaluations
from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.store import open_store

# Each script imports PyTorch and transformers, which takes most of the time.
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "unchanged"
TARGET = {"metric": "eval_accuracy", "threshold": "0.9"}
FOREVER = 100_000


def run(local_job: LocalJob, source: str, epochs: str, recurrences: int) -> list[TrainingRecurrence]:
    """The recurrences of the script as a job."""
    container = {
        "name": "train",
        "image": "none",
        "command": ["python", "train.py"],
        "args": ["--batch-size=$(WATTLOOP_BATCH_SIZE)", f"--epochs={epochs}"],
    }
    local_job.job(
        SCRIPT,
        objective={"target": TARGET, "maxEpochs": FOREVER},
        reporting={"source": source},
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
    )
    assert local_job.run("--recurrences", str(recurrences), "--simulated-load", "cpu") == 0
    with open_store(local_job.output / "wattloop.db") as store:
        stored = store.objects.list("TrainingRecurrence", "local")
    return [TrainingRecurrence.from_wire(each.body) for each in stored]


def logged(local_job: LocalJob, recurrence: TrainingRecurrence) -> list[tuple[float, float]]:
    """Epoch and accuracy of each evaluation that the script printed itself."""
    return evaluations((local_job.output / "logs" / f"{recurrence.metadata.name}.log").read_text())


# By the log, the example and a stranger's compiled script are ended at their targets.
@pytest.mark.parametrize(
    ("source", "count"), exhaustive_after([("KubeflowTrainer", 1), ("KubeflowTrainer", 2), ("Logs", 1)])
)
def test_a_training_is_ended_at_its_target_with_the_metric_that_it_logs(
    local_job: LocalJob, source: str, count: int
) -> None:
    recurrences = run(local_job, source, str(FOREVER), count)
    assert [recurrence.status.result for recurrence in recurrences] == ["Reached"] * count
    for recurrence in recurrences:
        progress, usage, evaluations = (
            recurrence.status.progress,
            recurrence.status.usage,
            logged(local_job, recurrence),
        )
        assert progress.curve is not None
        final = (float(progress.epoch or 0), float(progress.metric or 0))
        assert final in [(epoch, pytest.approx(accuracy, rel=1e-3)) for epoch, accuracy in evaluations]
        assert usage.gpu_energy_joules > 0
        assert recurrence.status.cost_joules is not None


@pytest.mark.parametrize("source", exhaustive_after(["KubeflowTrainer", "Logs"]))
def test_a_short_training_has_the_metric_that_it_logs_at_its_target_or_its_end(
    local_job: LocalJob, source: str
) -> None:
    (recurrence,) = run(local_job, source, "20", 1)
    progress, evaluations = recurrence.status.progress, logged(local_job, recurrence)
    assert recurrence.status.result == "Reached"
    reached = [each for each in evaluations if each[1] >= float(TARGET["threshold"])]
    # What is printed between the target and the end does not count. The callback sends nothing in less than 5 s before
    # the end; a training that takes longer is ended by a report.
    expected = reached[:1] if source == "Logs" else reached
    final = (float(progress.epoch or 0), float(progress.metric or 0))
    assert any(final == pytest.approx(each, rel=1e-3) for each in expected), (final, evaluations)


@pytest.mark.parametrize("count", exhaustive_after([1, 2]))
def test_the_example_of_an_unchanged_script_is_ended_at_its_target(tmp_path: Path, count: int) -> None:
    assert "wattloop" not in (EXAMPLE / "train.py").read_text().replace("knows nothing of Wattloop", "")
    output = tmp_path / "output"
    words = ["run", str(EXAMPLE / "job.yaml"), "--recurrences", str(count), "--output", str(output)]
    assert main([*words, "--simulated-gpus", "1", "--simulated-load", "cpu"]) == 0
    with open_store(output / "wattloop.db") as store:
        recurrences = [
            TrainingRecurrence.from_wire(each.body) for each in store.objects.list("TrainingRecurrence", "local")
        ]
    assert [each.status.result for each in recurrences] == ["Reached"] * count
    for recurrence in recurrences:
        progress, usage = recurrence.status.progress, recurrence.status.usage
        text = (output / "logs" / f"{recurrence.metadata.name}.log").read_text()
        found = [
            (float(epoch), float(value)) for epoch, value in re.findall(r"Epoch (\d+)/40 .* accuracy: (\S+)", text)
        ]
        assert (float(progress.epoch or 0), float(progress.metric or 0)) in found
        assert usage.gpu_energy_joules > 0
        assert recurrence.status.cost_joules is not None


def test_each_line_of_the_manifest_that_the_page_shows_is_in_the_example() -> None:
    page = (ROOT / "docs" / "zero-code.md").read_text(encoding="utf-8")
    shown = re.search(r"\n\n((?:    .*\n)+)", page)
    lines = [line.strip() for line in (EXAMPLE / "job.yaml").read_text(encoding="utf-8").splitlines()]
    for line in shown[1].splitlines():
        # The example has a comment on its image.
        assert any(each.partition("  #")[0] == line.strip() for each in lines), line
