"""`wattloop run` with spec.reporting.source Logs: trainings that know nothing of Wattloop."""

import signal
from pathlib import Path
from typing import Any

import pytest

from support.local_runs.local_runs import LocalJob
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.store import open_store

pytestmark = pytest.mark.processes

# Prints its metric, and would train for ever. It writes the signal that ends it.
ENDLESS = """
import itertools, signal, sys, time
import nvml_simulator

def end(number, frame):
    open("signal", "w").write(str(number))
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
batch_size = int(sys.argv[1].partition("=")[2])
for epoch in itertools.count(1):
    nvml_simulator.occupy(0, work=3120.0, intensity=0.8)
    print(f"epoch={epoch} loss=1e-3 accuracy={0.1 * epoch:.2f} batch={batch_size}")
    if epoch >= EPOCHS:
        time.sleep(600)
"""


def logs_job(folder: Path, script: str, **spec: Any) -> LocalJob:
    local = LocalJob(folder)
    container = {
        "name": "train",
        "image": "none",
        "command": ["python", "train.py"],
        "args": ["--batch-size=$(WATTLOOP_BATCH_SIZE)"],
    }
    local.job(
        script,
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        **{"reporting": {"source": "Logs"}, **spec},
    )
    return local


def recurrences_of(local: LocalJob) -> list[TrainingAttempt]:
    with open_store(local.output / "wattloop.db") as store:
        stored = store.objects.list("TrainingRecurrence", "local")
    return [TrainingAttempt.from_wire(each.body) for each in stored]


def test_a_script_without_the_client_is_ended_at_its_target_with_its_energy_and_metric_known(tmp_path: Path) -> None:
    local = logs_job(tmp_path, ENDLESS.replace("EPOCHS", "4"))
    assert local.run("--recurrences", "1") == 0
    [recurrence] = recurrences_of(local)
    status = recurrence.status
    progress = status.progress
    assert (status.result, str(progress.metric), str(status.epochs)) == ("Reached", "0.4", "4")
    assert progress.curve.metrics == (0.1, 0.2, 0.3, 0.4)
    assert (tmp_path / "signal").read_text() == str(int(signal.SIGTERM))
    assert status.usage.gpu_energy_joules > 0
    assert status.cost_joules is not None
    [row] = local.rows()
    assert float(row["cost_joules"]) > 0
    [log] = (local.output / "logs").glob("tiny-*.log")
    assert f"batch={recurrence.spec.batch_size}" in log.read_text()


def test_a_script_is_ended_once_it_prints_an_epoch_after_the_last_one(tmp_path: Path) -> None:
    objective = {"target": {"metric": "accuracy", "threshold": "0.35"}, "maxEpochs": 3}
    # It prints its best epoch again as it ends.
    script = ENDLESS.replace("EPOCHS", "4").replace("sys.exit(0)", "print('epoch=3 accuracy=0.4'); sys.exit(0)")
    local = logs_job(tmp_path, script, objective=objective, retries=0)
    assert local.run("--recurrences", "1") == 0
    [recurrence] = recurrences_of(local)
    status = recurrence.status
    assert (status.result, str(status.epochs), str(status.metric)) == ("Exhausted", "3", "0.3")


def test_the_last_line_of_a_script_counts_also_without_a_line_feed(tmp_path: Path) -> None:
    local = logs_job(
        tmp_path,
        "print('Epoch 0: top-1 is 38 %')\nprint('Epoch 1: top-1 is 41 %', end='')",
        objective={"target": {"metric": "accuracy", "threshold": "40"}},
        reporting={"source": "Logs", "pattern": r"Epoch (?P<epoch>\d+): top-1 is (?P<metric>\S+)"},
    )
    assert local.run("--recurrences", "1") == 0
    [recurrence] = recurrences_of(local)
    assert (recurrence.status.result, str(recurrence.status.epochs)) == ("Reached", "2")


@pytest.mark.parametrize(
    ("output", "epochs", "metric"),
    [
        # tqdm's bar over the epochs, behind which the script prints.
        (
            (
                "\\r 33%|## | 1/3 [00:01<00:02, 1.0s/it]Epoch 1: accuracy=0.81\\n"
                "\\r 67%|#### | 2/3 [00:02<00:01, 1.0s/it]Epoch 2: accuracy=0.95\\n"
            ),
            "2",
            "0.95",
        ),
        ("epoch 0 begins\\nepoch 0 accuracy np.float64(0.95)\\n", "1", "0.95"),
    ],
)
def test_an_output_of_a_common_form_reaches_its_target_with_its_epochs(
    tmp_path: Path, output: str, epochs: str, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = logs_job(
        tmp_path,
        f'import time\nprint("{output}", end="", flush=True)\ntime.sleep(600)',
        objective={"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 20},
    )
    assert local.run("--recurrences", "1") == 0
    [recurrence] = recurrences_of(local)
    status = recurrence.status
    assert (status.result, str(status.epochs), str(status.progress.metric)) == ("Reached", epochs, metric)
    shown = [line for line in capsys.readouterr().err.splitlines() if ": epoch 1, accuracy 0." in line]
    # At the first evaluation, and in the summary.
    assert [line.partition(":")[0] for line in shown] == ["The first evaluation", "Read from the output, first"]


ROWS = """
import json, sys, time
import nvml_simulator

with open(sys.argv[1], "a" if sys.argv[1] == "metrics.csv" else "w") as rows:
    if rows.tell() == 0 and rows.name == "metrics.csv":
        rows.write("epoch,accuracy\\n")
    for epoch in range(1, 5):
        nvml_simulator.occupy(0, work=3120.0, intensity=0.8)
        row = {"epoch": epoch, "accuracy": epoch / 10}
        rows.write(f"{epoch},{epoch / 10}\\n" if rows.name == "metrics.csv" else json.dumps(row) + "\\n")
        rows.flush()
    print("accuracy=0.99", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("path", ["metrics.csv", "$(WATTLOOP_RECURRENCE).jsonl"])
def test_a_metric_that_is_in_a_file_alone_is_read_from_what_each_run_adds(tmp_path: Path, path: str) -> None:
    local = LocalJob(tmp_path)
    container = {"name": "train", "image": "none", "command": ["python", "train.py", path]}
    local.job(
        ROWS,
        reporting={"source": "File", "path": path},
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
    )
    (tmp_path / "metrics.csv").write_text("epoch,accuracy\n1,0.9\n")
    assert local.run("--recurrences", "2") == 0
    for recurrence in recurrences_of(local):
        progress = recurrence.status.progress
        assert (recurrence.status.result, progress.curve.metrics) == ("Reached", (0.1, 0.2, 0.3, 0.4))


def test_a_training_whose_steps_alone_meet_the_target_has_not_reached_it(tmp_path: Path) -> None:
    script = "for batch in range(3):\n    print(f'Epoch[0] Batch [{batch}]\\taccuracy=0.99')"
    local = logs_job(tmp_path, script, retries=0)
    assert local.run("--recurrences", "1") == 1
    [recurrence] = recurrences_of(local)
    assert recurrence.status.result == "MissingMetric"
    assert "has accuracy of a step or a batch, which counts only if" in recurrence.status.message


def test_a_script_whose_metric_is_not_a_number_is_ended_as_diverged(tmp_path: Path) -> None:
    script = "import time\nprint('epoch=1 accuracy=nan')\ntime.sleep(600)"
    local = logs_job(tmp_path, script, retries=0)
    assert local.run("--recurrences", "1") == 1
    [recurrence] = recurrences_of(local)
    assert recurrence.status.result == "Diverged"


@pytest.mark.parametrize(
    ("printed", "message"), [("loss=0.1", "epoch=1 accuracy=0.5"), ("acuracy=0.9", "did you mean acuracy?")]
)
def test_a_script_that_prints_no_metric_gets_a_message_with_the_line_to_print(
    printed: str, message: str, tmp_path: Path
) -> None:
    local = logs_job(tmp_path, f"print('{printed}')", retries=0)
    assert local.run("--recurrences", "1") == 1
    [recurrence] = recurrences_of(local)
    assert recurrence.status.result == "MissingMetric"
    assert message in recurrence.status.message


def test_a_pattern_that_is_slow_ends_the_reading_of_its_own_training_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pattern = r"(?:.{0,900})(?P<metric>z)"
    script = "for _ in range(40):\n    print('x' * 16000)\nprint('accuracy=0.9')"
    local = logs_job(tmp_path, script, reporting={"source": "Logs", "pattern": pattern}, retries=0)
    assert local.run("--recurrences", "1") == 1
    [recurrence] = recurrences_of(local)
    assert recurrence.status.result == "MissingMetric"
    assert f"the pattern {pattern!r} takes" in caplog.text
    assert "for a line of 16000 bytes" in caplog.text


def test_a_job_that_needs_a_kubelet_is_refused_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = logs_job(tmp_path, "pass", reporting={"source": "TerminationMessage"})
    assert local.run("--recurrences", "1") == 2
    assert "found spec.reporting.source TerminationMessage, expected Logs" in capsys.readouterr().err
