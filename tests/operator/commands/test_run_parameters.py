"""`wattloop run` of a job that chooses its learning rate together with its batch size."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.local_runs.local_runs import LocalJob
from wattloop.commands.main import main
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.reconcile.learning.job_observations import default_configuration, parameters_of
from wattloop_planner.bandit.configuration import Configuration, ConfigurationSpace

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits" / "learning-rate.yaml"
# The rate 0.4 takes half the epochs of 0.1, and 1.6 diverges.
TRAINING = """
import os
import wattloop
import nvml_simulator
rate = float(os.environ["WATTLOOP_PARAM_LEARNING_RATE"])
with wattloop.Run() as run:
    for epoch in run.epochs():
        nvml_simulator.occupy(0, work=3120.0 * (32 + run.batch_size) / 64, intensity=0.8)
        run.step()
        gain = 0.1 if rate == 0.4 else 0.05
        metric = float("nan") if rate == 1.6 else gain * (epoch + 1) * (32 / run.batch_size) ** 0.5
        print(f"learning rate {rate}", flush=True)
        run.report(metric=metric)
"""
SPEC: dict[str, Any] = {
    "parameters": [{"name": "learning_rate", "default": "0.1", "candidates": ["0.1", "0.4", "1.6"]}],
    "power": {"mode": "None"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> LocalJob:
    """A job that has run nine recurrences."""
    job = LocalJob(tmp_path_factory.mktemp("job"), draws_plots=True)
    job.job(TRAINING, **SPEC)
    assert job.run("--recurrences", "9") == 0
    return job


def test_the_defaults_run_first_and_the_best_learning_rate_is_kept(finished: LocalJob) -> None:
    rows = finished.rows()
    assert (rows[0]["batch_size"], rows[0]["param:learning_rate"]) == ("32", "0.1")
    assert {row["param:learning_rate"] for row in rows[-3:]} == {"0.4"}


def test_the_training_gets_the_chosen_value(finished: LocalJob) -> None:
    logs = sorted((finished.output / "logs").iterdir())
    trained = [log.read_text().split()[2] for log in logs]
    assert sorted(trained) == sorted(row["param:learning_rate"] for row in finished.rows())


def test_a_learning_rate_that_diverges_is_stopped_after_one_epoch_and_not_repeated(finished: LocalJob) -> None:
    diverged = [row for row in finished.rows() if row["param:learning_rate"] == "1.6"]
    assert {(row["outcome"], float(row["epochs"])) for row in diverged} == {("diverged", 1.0)}
    assert len({row["batch_size"] for row in diverged}) == len(diverged)


def test_history_and_plots_show_the_parameters(finished: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    database = f"sqlite:///{finished.output / 'wattloop.db'}"
    capsys.readouterr()
    assert main(["history", "tiny", "--database", database, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["param:learning_rate"] for row in rows] == [row["param:learning_rate"] for row in finished.rows()]
    assert (finished.output / "cost.png").stat().st_size > 0


def test_the_example_offers_three_learning_rates_and_six_batch_sizes() -> None:
    spec = RecurringTrainingJob.from_wire(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))).spec
    sizes = tuple(sorted(spec.batch_size.candidates))
    assert ConfigurationSpace(sizes, spec.batch_size.default, parameters_of(spec)).size == 18
    assert default_configuration(spec) == Configuration(256, (("learning_rate", "0.05"),))
