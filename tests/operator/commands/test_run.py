"""`wattloop run`: from the manifest to the files in the output folder."""

import json
import re
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.local_runs.local_runs import TRAINING, LocalJob, wait_for_end
from wattloop.commands.main import main
from wattloop_operator.store.store import open_store

pytestmark = pytest.mark.processes

FILES = {"wattloop.db", "recurrences.csv", "cost.png", "tradeoff.png"}


def measured(row: dict[str, str]) -> dict[str, str]:
    """The cells that later recurrences do not change."""
    return {name: cell for name, cell in row.items() if "default_cost" not in name and "saving" not in name}


MAXIMUM = {"maxRecurrences": 2}


@pytest.mark.parametrize(
    ("spec", "given"), [({}, "1 recurrences of --recurrences"), (MAXIMUM, "2 recurrences of spec")]
)
def test_a_job_without_a_schedule_runs_its_maximum_of_recurrences_or_once(
    local_job: LocalJob, spec: dict[str, Any], given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(**spec)
    assert local_job.run() == 0
    assert len(local_job.outcomes()) == int(given[0])
    capsys.readouterr()
    assert main(["history", "--database", str(local_job.output), "--jobs", "--format", "json"]) == 0
    assert f"all {given}" in json.loads(capsys.readouterr().out)[0]["why"]


def test_the_same_seed_gives_the_same_table_and_a_later_run_continues_it(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job()
    local_job.draws_plots = True
    other = tmp_path / "other"
    assert local_job.run("--recurrences", "2") == 0
    output = capsys.readouterr()
    assert output.out.count("reached") == 2
    assert "A run of the default configuration is expected to use " in output.err
    # stderr is not a terminal, so it has lines instead of a live table.
    assert [line.partition(" (")[0] for line in output.err.splitlines() if ": Reached: " in line] == [
        "run 0, try 0",
        "run 1, try 0",
    ]
    assert {path.name for path in local_job.output.iterdir()} >= FILES
    local_job.draws_plots = False
    assert local_job.run("--recurrences", "2", output=other) == 0
    table = (local_job.output / "recurrences.csv").read_bytes()
    assert (other / "recurrences.csv").read_bytes() == table
    assert list(other.glob("*.png")) == []
    rows = local_job.rows()
    capsys.readouterr()
    # The live page has the same sentence.
    assert main(["history", "--database", str(local_job.output), "--jobs", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["why"] == "all 2 recurrences of --recurrences were started"
    # A second run has nothing to do, and its message says how to continue.
    assert local_job.run("--recurrences", "2", "--format", "jsonl") == 0
    output = capsys.readouterr()
    assert "Nothing was left to run. To continue, give a larger --recurrences" in output.err
    assert [json.loads(line)["recurrence"] for line in output.out.splitlines()] == [0, 1]
    assert (local_job.output / "recurrences.csv").read_bytes() == table
    assert local_job.run("--recurrences", "3") == 0
    # The expected cost of the default configuration, and the savings against it, are those by all recurrences.
    assert [measured(row) for row in local_job.rows()[:2]] == [measured(row) for row in rows]
    assert local_job.outcomes() == [(str(index), "0", "reached") for index in range(3)]


# The same training with figures that follow from the decision's seed. Its first attempt of a recurrence hangs if a file
# says so.
SEEDED = """
import os, pathlib, random, time
import wattloop
import nvml_simulator
with wattloop.Run(batch_size=8, max_epochs=20) as run:
    ease = random.Random(run.seed).uniform(0.8, 1.2)
    _, index, _, attempt = os.environ["WATTLOOP_RECURRENCE"].rsplit("-", 3)
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0 * (32 + run.batch_size) / 64, intensity=0.8)
        run.step()
        run.report(metric=0.1 * ease * (epoch + 1) * (32 / run.batch_size) ** 0.5)
        if epoch == 1 and attempt == "0" and pathlib.Path(f"hang-{int(index)}").exists():
            pathlib.Path("begun.part").write_text(f"{os.getpid()} {os.getpid()}")
            os.replace("begun.part", "begun")
            time.sleep(600)
"""


def decided_and_measured(row: dict[str, str]) -> dict[str, Any]:
    """The cells of a row that a disruption must not change; energy is read at other times of the GPU's clock."""
    told = {
        name: row[name] for name in ("recurrence", "batch_size", "power_limit_watts", "outcome", "epochs", "metric")
    }
    reason, _, _ = row["reason"].partition("; this repeats attempt ")
    return {**told, "reason": reason, "energy": pytest.approx(float(row["energy_joules"]), rel=0.01)}


def test_an_interrupted_and_a_killed_run_end_with_the_rows_of_an_undisturbed_one(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Few recurrences are worth no trial to the default policy; the published one prunes from the first on.
    local_job.job(SEEDED, batchSize={"policy": "Zeus"})
    undisturbed = tmp_path / "undisturbed"
    assert local_job.run("--recurrences", "4", output=undisturbed) == 0
    for index, number, code in ((0, signal.SIGINT, 130), (1, signal.SIGKILL, -signal.SIGKILL)):
        hang = local_job.folder / f"hang-{index}"
        hang.touch()
        run = local_job.start("--recurrences", "4")
        training, _ = local_job.wait_for_training(run)
        run.signal(number)
        assert run.ended() == code
        wait_for_end([training])
        hang.unlink()
    assert local_job.run("--recurrences", "4") == 0
    disrupted = [row["recurrence"] for row in local_job.rows() if row["outcome"] == "disrupted"]
    assert disrupted == ["0", "1"]
    rows = [decided_and_measured(row) for row in local_job.rows() if row["outcome"] != "disrupted"]
    assert rows == [decided_and_measured(row) for row in local_job.rows(undisturbed)]
    assert len({row["batch_size"] for row in rows}) > 1
    # With another policy, other candidates and another weight of energy it goes on; all decisions can be made again.
    objective = {"target": {"metric": "accuracy", "threshold": "0.4"}, "maxEpochs": 20, "energyWeightPercent": 80}
    candidates = {"default": 32, "candidates": [4, 8, 32]}
    local_job.job(SEEDED, objective=objective, batchSize=candidates)
    assert local_job.run("--recurrences", "6") == 0
    capsys.readouterr()
    assert main(["replay", str(local_job.output), "--format", "json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert [(each["recurrence"], each["attempt"]) for each in replayed["decisions"]] == [
        (int(recurrence), int(attempt)) for recurrence, attempt, _ in local_job.outcomes()
    ]
    assert (replayed["equal"], replayed["total"]) == (8, 8)


@pytest.mark.parametrize(
    ("spec", "options", "clock"),
    [({"frequencyPlan": {"choice": "Fastest"}}, (), "wall"), ({}, (), "virtual"), ({}, ("--gpu-model", "K80"), "wall")],
)
def test_simulated_gpus_of_a_planned_pipeline_or_without_a_counter_run_in_real_time(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], options: tuple[str, ...], clock: str
) -> None:
    local_job.job(suspend=True, power={"mode": "None", **spec})
    assert local_job.run(*options) == 1
    assert nvml_simulator.describe(local_job.output / "simulated-gpus").clock == clock
    noticed = "simulated GPUs run in real time" in capsys.readouterr().err
    assert noticed == (clock == "wall")


# A training that fails in another way in each run.
FAILING = """
import pathlib, sys
import wattloop
import nvml_simulator
count = pathlib.Path("count")
runs = int(count.read_text()) if count.exists() else 0
count.write_text(str(runs + 1))
with wattloop.Run() as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0, intensity=0.8)
        if runs == 0:
            sys.exit(3)
        if runs == 2:
            run.report(metric=0.1)
"""
SLEEPING = "import time; time.sleep(600)"


def test_a_failure_is_in_the_table_and_its_reason_on_stderr(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    target = {"target": {"metric": "accuracy", "threshold": "0.4"}, "maxEpochs": 3}
    local_job.job(FAILING, objective=target, retries=0)
    assert local_job.run("--recurrences", "3") == 0
    stderr = capsys.readouterr().err
    assert local_job.outcomes() == [("0", "0", "crashed"), ("1", "0", "missing-metric"), ("2", "0", "exhausted")]
    for index, message in enumerate(
        (
            f"Crashed: batch size 32: exit code 3; see {local_job.output}/logs/tiny-",
            "MissingMetric: ended without accuracy: call run.report(metric=…)",
            "Exhausted: accuracy got to 0.1 after 3 epochs, below the target 0.4",
        )
    ):
        (line,) = [line for line in stderr.splitlines() if line.startswith(f"run {index}, try 0 (tiny-")]
        assert message in line


def test_a_target_that_nothing_reaches_costs_one_attempt_per_run_and_is_logged_once(
    local_job: LocalJob, caplog: pytest.LogCaptureFixture
) -> None:
    target = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 2}
    local_job.job(objective=target)
    local_job.run("--recurrences", "3")
    attempts = [("0", "0"), ("0", "1"), ("0", "2"), ("1", "0"), ("2", "0")]
    assert local_job.outcomes() == [(*attempt, "exhausted") for attempt in attempts]
    (line,) = [message for message in caplog.messages if message.startswith("TargetUnreachable: ")]
    assert "none of 3 attempts (batch sizes 8, 16, 32) reached accuracy 0.9 within 2 epochs" in line
    assert "the best was 0.4 with batch size 8 after 2 epochs" in line


@pytest.mark.parametrize(
    "change",
    [
        {"learnSince": "data of March"},
        # Of the same metric the curves of the earlier runs say when they reached another threshold.
        {"objective": {"target": {"metric": "recall", "threshold": "0.3"}, "maxEpochs": 20}},
    ],
)
def test_a_job_that_forgets_or_has_another_metric_starts_with_its_default(
    local_job: LocalJob, change: dict[str, Any]
) -> None:
    local_job.job()
    assert local_job.run("--recurrences", "2") == 0
    local_job.job(**change)
    assert local_job.run("--recurrences", "3") == 0
    reasons = [row["reason"].split(":")[0] for row in local_job.rows()]
    assert [reason == "nothing is known yet" for reason in reasons] == [True, False, True]


def test_a_tariff_is_remembered_with_the_folder_until_another_one_is_given(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def month(*options: str) -> dict[str, Any]:
        capsys.readouterr()
        month = f"{datetime.now(UTC):%Y-%m}"
        source = ("--database", str(local_job.output), "--month", month, "--format", "json")
        assert main(["history", *source, *options]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)[0]
        return found

    tariff, other = tmp_path / "tariff.yaml", tmp_path / "other.yaml"
    tariff.write_text(
        "{currency: EUR, perKilowattHour: 0, namespaces: {local: {currency: SEK, perKilowattHour: 3600}}}"
    )
    other.write_text("gramsPerKilowattHour: 3600")
    local_job.job()
    assert local_job.run("--recurrences", "1", "--tariff", str(tariff)) == 0
    assert local_job.run("--recurrences", "2") == 0
    found = month()
    assert found["money_amount"] == pytest.approx(found["energy_joules"] / 1000)
    assert (found["currency"], found["carbon_grams"]) == ("SEK", None)
    found = month("--tariff", str(other))
    assert (found["money_amount"], found["currency"]) == (None, "")
    assert found["carbon_grams"] == pytest.approx(found["energy_joules"] / 1000)


def test_a_training_that_hangs_is_terminated_at_its_deadline(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(SLEEPING, retries=0, activeDeadlineSeconds=1)
    assert local_job.run("--recurrences", "1") == 1
    assert local_job.outcomes() == [("0", "0", "deadline-exceeded")]
    message = "DeadlineExceeded: still running at activeDeadlineSeconds; it never reported a metric"
    assert message in capsys.readouterr().err


def test_a_job_that_nothing_can_be_learned_from_is_named(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(batchSize={"default": 32, "candidates": [8, 16, 32], "learnFrom": "no-such-job"})
    assert local_job.run("--recurrences", "1") == 0
    expected = (
        "spec.batchSize.learnFrom: there is no RecurringTrainingJob no-such-job in namespace local; both jobs must"
    )
    assert capsys.readouterr().err.count(expected) == 1


def test_a_command_that_cannot_be_started_is_named(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job()
    manifest = local_job.manifest.read_text().replace("python", "no-such-program")
    local_job.manifest.write_text(manifest)
    assert local_job.run("--recurrences", "20") == 1
    stderr = capsys.readouterr().err
    assert "no-such-program: cannot be started: No such file or directory" in stderr
    assert "wattloop run: tiny: the training fails at its start" in stderr


def test_the_json_lines_have_each_attempt_once(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    target = {"target": {"metric": "accuracy", "threshold": "0.4"}}
    local_job.job(
        batchSize={"default": 32, "candidates": [32], "scope": "PerDevice"}, objective=target | {"maxEpochs": 20}
    )
    options = ("--recurrences", "2", "--simulated-gpus", "2", "--format", "jsonl")
    assert local_job.run(*options) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["recurrence"], line["outcome"]) for line in lines] == [(0, "reached"), (1, "reached")]
    # Later runs change the comparison with the default configuration, so no line that is written early has it.
    columns = [
        each for each in local_job.rows()[0] if each != "purpose" and not re.search("default_|cost_saving", each)
    ]
    assert list(lines[0]) == columns
    assert lines[0]["energy_joules"] > 0


INVALID_SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"maxRecurrence": 3}, "maxRecurrence"),
    "η of 2": (
        {"objective": {"energyWeightPercent": 200, "target": {"metric": "a", "threshold": "1"}, "maxEpochs": 3}},
        "energyWeightPercent",
    ),
    "no batch sizes": ({"batchSize": {"default": 32, "candidates": []}}, "candidates"),
    "a default that is not a candidate": ({"batchSize": {"default": 64, "candidates": [32]}}, "default"),
    "a bad schedule": ({"schedule": "every day"}, "schedule"),
}


@pytest.mark.parametrize(("spec", "field"), INVALID_SPECS.values(), ids=INVALID_SPECS.keys())
def test_an_invalid_manifest_is_rejected_with_its_position(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], field: str
) -> None:
    local_job.job(**spec)
    assert local_job.run() == 2
    stderr = capsys.readouterr().err
    assert re.match(
        rf"wattloop run: {re.escape(str(local_job.manifest))}:\d+:\d+: spec\.\S*{field}\S* found .*, expected ", stderr
    )
    assert not local_job.output.exists()


CONTAINER = {"name": "train", "image": "none"}
NEEDS_CLUSTER: dict[str, tuple[dict[str, Any], str]] = {
    "no command": ({"containers": [CONTAINER]}, "container 'train' without command"),
    "a variable of a secret": (
        {
            "containers": [
                CONTAINER
                | {
                    "command": ["python"],
                    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                }
            ]
        },
        "variable KEY of container 'train' from another object",
    ),
}


@pytest.mark.parametrize(("pod", "message"), NEEDS_CLUSTER.values(), ids=NEEDS_CLUSTER.keys())
def test_a_template_that_needs_a_cluster_is_rejected(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str], pod: dict[str, Any], message: str
) -> None:
    local_job.job(template={"spec": {"template": {"spec": {"restartPolicy": "Never", **pod}}}})
    assert local_job.run() == 2
    assert message in capsys.readouterr().err
    assert not local_job.output.exists()


def test_a_job_that_starts_nothing_reports_the_reason(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job(suspend=True)
    assert local_job.run() == 1
    assert "tiny: Suspended: spec.suspend is true" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--recurrences", "0"),
        ("--recurrences", "-1"),
        ("--recurrences", "many"),
        ("--recurrences", "9" * 5000),
        ("--simulated-gpus", "0"),
        ("--simulated-gpus", "65"),
        ("--gpu-model", "B200"),
        ("--seed", "-1"),
        ("--format", "xml"),
    ],
)
def test_invalid_options_are_rejected(local_job: LocalJob, options: tuple[str, ...]) -> None:
    local_job.job()
    with pytest.raises(SystemExit) as exited:
        local_job.run(*options)
    assert exited.value.code == 2
    assert not local_job.output.exists()


POLICY = """
apiVersion: wattloop.dev/v1alpha1
kind: GPUPowerPolicy
metadata: {name: policy}
spec: {}
"""


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no readable file"), (POLICY, "found RecurringTrainingJobs: none, expected exactly one")],
)
def test_a_file_without_a_job_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_text(content)
    assert main(["run", str(path), "--simulated-gpus", "1", "--output", str(tmp_path / "output")]) == 2
    assert message in capsys.readouterr().err


def test_the_model_of_the_latest_recurrence_that_reached_is_current(local_job: LocalJob) -> None:
    save = "    with open(f'{run.output_dir}/weights', 'w') as file:\n        file.write(run.environment.recurrence)\n"
    local_job.job(TRAINING + save, output={"directory": "/models/tiny"}, retries=0)
    assert local_job.run("--recurrences", "2") == 0
    attempts = sorted((local_job.output / "models" / "attempts").iterdir())
    assert len(attempts) == 2
    current = (local_job.output / "models" / "current").resolve()
    assert current == attempts[-1]
    assert (current / "weights").read_text() == attempts[-1].name
    (job,) = stored_jobs(local_job)
    assert job["status"]["published"]["path"] == f"attempts/{current.name}"
    # A later recurrence that misses the target changes nothing.
    (local_job.folder / "train.py").write_text((TRAINING + save).replace("metric=0.1", "metric=0.0"))
    assert local_job.run("--recurrences", "3") in (0, 1)
    assert len(list((local_job.output / "models" / "attempts").iterdir())) > 2
    assert (local_job.output / "models" / "current").resolve() == current


def stored_jobs(local_job: LocalJob) -> list[dict[str, Any]]:
    with open_store(local_job.output / "wattloop.db") as store:
        return [each.body for each in store.objects.list("RecurringTrainingJob", "local")]
