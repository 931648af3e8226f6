"""A trial that fails, or is used wrongly, neither ends a training nor stops it silently: with a simulated GPU."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.test_training_probe import Node, Training, last_probes, running, trained
from support.agents.simulated_node import simulated_node
from support.reporting.report_server import ReportServer
from wattloop.errors import UsageError
from wattloop.run.probe_grid import ProbePlan

pytestmark = pytest.mark.integrations

PLAN = ProbePlan(at=(0.5,), parameters={"dropout": ("0.2", "0.5")}, steps=2, warm_up_steps=1, max_time_percent=100.0)
METRICS = (0.1, 0.55, 0.6)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with simulated_node(1) as simulated:
        yield Node(simulated.gpus, simulated.socket, simulated.state)


def test_the_losses_before_and_after_a_trial_are_of_models_in_evaluation_mode(node: Node) -> None:
    training = Training(node)
    modes = []

    def loss(model: torch.nn.Module) -> float:
        modes.append(any(module.training for module in model.modules()))
        return training.loss(model)

    with running(node) as run:
        trained(training, run, METRICS, training.probe(run, PLAN, loss=loss))
    # One before all trials, and one after each.
    assert modes == [False] * 3


def test_data_that_makes_an_iterator_is_refused(node: Node) -> None:
    training = Training(node)

    def data(samples: int) -> Iterator[Any]:
        yield from training.data(samples)

    with running(node) as run:
        probe = training.probe(run, PLAN, data=data)
        with pytest.raises(UsageError, match="data made an iterator"):
            training.epoch(probe.batches, run)
        # A script that takes no batches from the probe meets it in the first trial.
        training.epoch(training.data(8), run)
        with pytest.raises(UsageError, match="data made an iterator"):
            probe.on_validation(0.55)


def test_each_step_of_a_trial_shows_progress_to_the_operator(node: Node, report_server: ReportServer) -> None:
    training = Training(node)
    reports = []

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
        reports.append(len(report_server.reports))
        training.step(model, optimizer, batch)

    with running(node, report_server.url, WATTLOOP_PROGRESS_DEADLINE_SECONDS="1e-9") as run:
        trained(training, run, METRICS, training.probe(run, PLAN, step=step))
    steps_of_a_trial = PLAN.warm_up_steps + PLAN.steps
    assert len(reports) == 2 * steps_of_a_trial
    assert len(set(reports)) == len(reports)


class LargeLayer(torch.nn.Identity):
    """A layer for one of whose copies there is no memory."""

    def __init__(self, failing_copy: int) -> None:
        super().__init__()
        self.failing_copy = failing_copy
        self.copies = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Identity:
        self.copies += 1
        if self.copies == self.failing_copy:
            raise torch.cuda.OutOfMemoryError("no memory for the copy")
        return torch.nn.Identity()


def test_a_trial_without_memory_for_its_copy_is_left_out(node: Node, tmp_path: Path) -> None:
    training = Training(node)
    training.model.append(LargeLayer(failing_copy=2))
    with running(node) as run:
        trained(training, run, METRICS, training.probe(run, PLAN, trials_file=tmp_path / "trials.jsonl"))
        assert run.completed_epochs == len(METRICS)
    trials = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [trial["energy_joules"] is None for trial in trials] == [True, False]


def test_without_memory_for_a_first_copy_nothing_is_tried(node: Node, report_server: ReportServer) -> None:
    training = Training(node)
    training.model.append(LargeLayer(failing_copy=1))
    with running(node, report_server.url) as run:
        trained(training, run, METRICS, training.probe(run, PLAN))
        assert run.completed_epochs == len(METRICS)
    report = last_probes(report_server)
    assert report.trials == 0
    assert "no memory for a copy of the model" in report.problem


def test_a_file_of_trials_that_cannot_be_written_is_warned_of_once(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(node)
    trials_file = tmp_path / "missing" / "trials.jsonl"
    with running(node) as run:
        trained(training, run, METRICS, training.probe(run, PLAN, trials_file=trials_file))
        assert run.completed_epochs == len(METRICS)
    warnings = [record.getMessage() for record in caplog.records if str(trials_file) in record.getMessage()]
    assert len(warnings) == 1
