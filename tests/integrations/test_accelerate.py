"""Accelerate with the tracker, and a reporting API of the test."""

from collections.abc import Iterator

import pytest
import torch
from accelerate import Accelerator

from support.reporting.managed_runs import epochs_and_metrics, managed_run
from support.reporting.report_server import ReportServer
from wattloop.errors import InputError, UsageError
from wattloop.integrations.accelerate import WattloopTracker

pytestmark = pytest.mark.integrations


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    yield
    Accelerator(cpu=True).free_memory()


def accelerator_of(tracker: WattloopTracker) -> Accelerator:
    accelerator = Accelerator(cpu=True, log_with=[tracker])
    accelerator.init_trackers("digits")
    return accelerator


def test_a_logged_metric_is_reported_and_ends_the_loop_at_the_target(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    accelerator = accelerator_of(WattloopTracker(run))
    for epoch in run.epochs():
        accelerator.log({"loss": 1.0}, step=epoch)
        accelerator.log({"accuracy": torch.tensor([0.5, 0.95][epoch]), "loss": 1.0}, step=epoch)
    accelerator.end_training()
    assert epochs_and_metrics(report_server) == [
        (0, None, False),
        (1, 0.5, False),
        (2, pytest.approx(0.95), False),
        (2, pytest.approx(0.95), True),
    ]
    assert accelerator.get_tracker("wattloop", unwrap=True) is run
    assert not run.active


def test_a_script_that_begins_the_run_itself_ends_it_itself(report_server: ReportServer) -> None:
    with managed_run(report_server) as run:
        accelerator = accelerator_of(WattloopTracker(run))
        accelerator.log({"accuracy": 0.5})
        accelerator.end_training()
        assert run.active
    assert epochs_and_metrics(report_server) == [(0, None, False), (1, 0.5, False), (1, 0.5, True)]


def test_two_epochs_without_the_metric_are_an_error_that_names_what_was_logged(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    accelerator = accelerator_of(WattloopTracker(run))
    epochs = run.epochs()
    for _ in range(2):
        next(epochs)
        accelerator.log({"loss": 1.0})
        accelerator.log({"f1": 0.5})
    next(epochs)
    with pytest.raises(InputError, match=r"accelerator\.log: found loss, f1, expected accuracy among the metrics"):
        accelerator.log({"loss": 1.0})
    accelerator.end_training()


def test_a_metric_of_four_elements_is_an_error_that_says_so(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    accelerator = accelerator_of(WattloopTracker(run))
    with pytest.raises(InputError, match=r"the metric accuracy: found a Tensor of shape \(4,\), expected one number"):
        accelerator.log({"accuracy": torch.zeros(4)})
    accelerator.end_training()


def test_a_run_is_of_one_training(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    accelerator_of(WattloopTracker(run)).end_training()
    with pytest.raises(UsageError, match=r"this run has begun before"):
        accelerator_of(WattloopTracker(run))
