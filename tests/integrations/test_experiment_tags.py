"""Tags of the runs of MLflow and Weights & Biases that a script has itself, with their real libraries offline."""

import json
import logging
import subprocess
import sys
from typing import Any

import mlflow
import pytest

from support.local_runs.local_runs import LocalJob
from support.reporting.managed_runs import managed_run
from support.reporting.report_server import ReportServer

# MLflow's database uses what newer versions of its libraries deprecate.
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TRAINING = """
with wattloop.Run() as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0, intensity=0.8)
        run.step()
        run.report(metric=0.1 * (epoch + 1))
"""
IMPORTS = "import json, nvml_simulator, wattloop\n"
MLFLOW = f"""
import mlflow
{IMPORTS}
mlflow.set_tracking_uri("TRACKING_URI")
mlflow.start_run(run_name="recurring")
{TRAINING}
mlflow.end_run()
"""
WANDB = f"""
import wandb
{IMPORTS}
tracked = wandb.init(mode="offline", project="digits", config={{"learning_rate": 0.1}})
{TRAINING}
with open("tags.json", "w") as file:
    json.dump({{**dict(tracked.config), **dict(tracked.summary)}}, file)
tracked.finish()
"""


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of MLflow, whose schema takes many seconds to make."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    mlflow.search_runs(["0"], output_format="list")
    return uri


def check(tags: dict[str, Any], row: dict[str, str]) -> None:
    assert tags["wattloop.job"] == "local/tiny"
    assert tags["wattloop.recurrence"].startswith("tiny-")
    assert (int(tags["wattloop.attempt"]), int(tags["wattloop.batch_size"])) == (0, 32)
    # It ended while it measured power limits, so it ran with none of them.
    assert (tags.get("wattloop.power_limit_watts"), row["power_limit_watts"]) == (None, "")
    for name in ("energy_joules", "time_seconds", "cost_joules"):
        assert float(tags[f"wattloop.{name}"]) == pytest.approx(float(row[name]), rel=1e-3), name


def test_a_run_of_mlflow_has_what_the_recurrence_cost(local_job: LocalJob, tracking_uri: str) -> None:
    local_job.job(MLFLOW.replace("TRACKING_URI", tracking_uri))
    assert local_job.run("--recurrences", "1") == 0
    (row,) = local_job.rows()
    (run,) = mlflow.MlflowClient(tracking_uri).search_runs(["0"], "attributes.run_name = 'recurring'")
    assert run.info.status == "FINISHED"
    check(run.data.tags, row)


def test_a_run_of_weights_and_biases_has_what_the_recurrence_cost(local_job: LocalJob) -> None:
    local_job.job(WANDB)
    assert local_job.run("--recurrences", "1") == 0
    tags = json.loads((local_job.folder / "tags.json").read_text())
    assert tags["learning_rate"] == 0.1
    check(tags, local_job.rows()[0])


def test_a_tracker_that_the_script_imports_and_does_not_use_gets_no_run(
    report_server: ReportServer, tracking_uri: str
) -> None:
    mlflow.set_tracking_uri(tracking_uri)
    before = mlflow.search_runs(["0"], output_format="list")
    with managed_run(report_server) as run:
        run.report(metric=0.5)
    assert mlflow.active_run() is None
    assert len(mlflow.search_runs(["0"], output_format="list")) == len(before)


def test_a_tracker_that_fails_leaves_the_training_alone(
    report_server: ReportServer, tracking_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow.set_tracking_uri(tracking_uri)
    with mlflow.start_run() as tracked, caplog.at_level(logging.WARNING, "wattloop"):
        # A deleted run takes no tags.
        mlflow.delete_run(tracked.info.run_id)
        with managed_run(report_server) as run:
            for _ in run.epochs():
                run.report(metric=0.5)
        mlflow.MlflowClient().restore_run(tracked.info.run_id)
    assert run.completed_epochs == 4
    assert len([record for record in caplog.records if "no more tags for mlflow" in record.message]) == 1


def test_a_training_outside_wattloop_imports_no_tags() -> None:
    code = (
        "import sys, types, wattloop\n"
        "sys.modules['mlflow'] = types.ModuleType('mlflow')\n"
        "with wattloop.Run(): pass\n"
        "print('wattloop.run.experiment_tags' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]
