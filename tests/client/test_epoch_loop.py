"""The epochs of a run, driven by the callbacks of a framework."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from support.reporting.managed_runs import epochs_and_metrics, managed_run
from support.reporting.report_server import ReportServer
from wattloop import Run
from wattloop.errors import InputError
from wattloop.integrations.epoch_loop import EpochLoop

ABANDONED = """
import sys
from wattloop import Run
from wattloop.integrations.epoch_loop import EpochLoop
run = Run(environment={"WATTLOOP_JOB": "team/digits", "WATTLOOP_REPORT_URL": sys.argv[1]})
loop = EpochLoop(run, "loss", prefix="", source="the evaluation")
loop.begin()
loop.report({"loss": 0.5})
loop.end_epoch()
raise RuntimeError("out of memory")
"""


def loop_of(run: Run, metric: str | None = None) -> EpochLoop:
    return EpochLoop(run, metric, prefix="val_", source="the evaluation")


def trained_by_callbacks(run: Run, metrics: list[float | None]) -> None:
    loop = loop_of(run)
    loop.begin()
    for metric in metrics:
        run.step()
        if metric is not None:
            loop.report({"accuracy": metric})
        if loop.end_epoch():
            break
    loop.end()


def trained_by_a_loop(run: Run, metrics: list[float | None]) -> None:
    with run:
        for epoch in run.epochs():
            run.step()
            metric = metrics[epoch]
            if metric is not None:
                run.report(metric=metric)


@pytest.mark.parametrize(
    "metrics",
    [[0.95], [0.1, 0.95], [0.1, 0.2, 0.3, 0.4], [None, None, 0.95], [None] * 4, [0.1, float("nan"), 0.1, 0.1]],
)
def test_callbacks_report_what_a_plain_loop_reports(report_server: ReportServer, metrics: list[float | None]) -> None:
    def reported(train: Callable[[Run, list[float | None]], None]) -> list[dict[str, object]]:
        report_server.reports.clear()
        train(managed_run(report_server), metrics)
        return [
            {name: value for name, value in each.items() if name not in ("process", "sequence")}
            for each in report_server.reports
        ]

    assert reported(trained_by_callbacks) == reported(trained_by_a_loop)


def test_the_metric_of_an_evaluation_is_preferred_to_one_of_training(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    loop = loop_of(run)
    loop.begin()
    loop.report({"accuracy": 0.99, "val_accuracy": 0.5})
    loop.end()
    assert [metric for _, metric, _ in epochs_and_metrics(report_server)] == [None, 0.5, 0.5]


@pytest.mark.parametrize("metric", ["val_loss", "loss", None])
def test_outside_wattloop_the_metric_is_the_loss_unless_it_is_named(metric: str | None) -> None:
    loop = loop_of(Run(environment={}), metric)
    loop.begin()
    loop.report({"val_loss": 0.5})
    loop.end()


def test_a_wrong_metric_ends_the_run_as_an_exception_does(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    loop = loop_of(run)
    loop.begin()
    with pytest.raises(InputError, match=r"the evaluation: found loss, expected val_accuracy or accuracy among"):
        loop.report({"loss": 0.5})
    assert not run.active
    assert not any(report.get("finished") for report in report_server.reports)


def test_a_process_that_ends_by_an_exception_reports_its_energy_but_no_end(report_server: ReportServer) -> None:
    words = [sys.executable, "-c", ABANDONED, report_server.url]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, "out of memory" in ended.stderr) == (1, True)
    assert epochs_and_metrics(report_server) == [(0, None, False), (1, 0.5, False), (1, 0.5, False)]
